"""`python -m devwidget plan`."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from devwidget.cli.commands import FAILED, FINE, FOUND, refuse_unwritable, run_subject
from devwidget.cli.options import CommandLine, add_gpus, add_subject, file_to_write
from devwidget.language.speaking import said, say
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

if TYPE_CHECKING:
    from devwidget.extras.plan.records.plan import Plan

HUB, UNLIMITED = "hf:", 1 << 60


def add_commands(line: CommandLine) -> None:
    """Add `plan`."""
    line.examples.append(("python -m devwidget plan train:step --gpus 4 --memory 24GiB", ""))
    line.examples.append(("python -m devwidget plan hf:ORG/NAME --card A100-80GB", ""))
    plan = line.add("plan", help=say("predict the memory of a step on GPUs you do not have"))
    add_gpus(plan, default=1)
    plan.add_argument("--placement", default="as is", help=say('"as is", "data parallel" or "auto"'))
    plan.add_argument("--loop", choices=("step", "plain", "trainer"), help=say("the loop around the step"))
    plan.add_argument("--accumulate", metavar="N", type=int, default=1, help=say("batches per optimizer step"))
    plan.add_argument("--batch", metavar="N", type=int, default=1, help=say("number of texts, for a model given by name"))
    plan.add_argument("--length", metavar="N", type=int, default=2048, help=say("tokens per text, for a model given by name"))
    plan.add_argument("--save", metavar="FILE", type=file_to_write, help=say("save the plan for `show` and `html`"))
    plan.add_argument(
        "--html",
        metavar="FILE",
        type=file_to_write,
        help=say("write a page with the changes, the largest batch and other cards"),
    )
    words = say("also plan LoRA and inference on every known card")
    plan.add_argument("--cards", action="store_true", help=words)
    plan.add_argument("--markdown", action="store_true", help=say("print the plan as Markdown"))
    add_subject(plan, say("; or hf:ORG/NAME, or the config.json of a model of transformers"))
    plan.set_defaults(command=plan_step)


def plan_step(options: Namespace) -> int:
    """What the step would take on other GPUs; for a model by its name, what can be done with it."""
    from devwidget import api
    from devwidget.extras.plan.api import plan

    if options.subject.startswith(HUB) or options.subject.endswith(".json"):
        return _plan_by_name(options)
    asked = {name: getattr(options, name) for name in ("gpus", "memory", "card", "placement", "loop", "accumulate")}
    virtual = api.simulate(options.gpus, UNLIMITED)
    try:
        found = run_subject(options.subject, lambda step: plan(**{**asked, **step}), instead=virtual)
    finally:
        virtual.stop()  # of use only to a subject that asks for GPUs as it is made
    if found is None:
        return FAILED
    print(found.to_markdown() if options.markdown else found)
    if options.cards:
        also: list[Literal["LoRA", "inference"]] = ["LoRA", "inference"] if "optimizer" in found.phases else []
        print(found.on_cards(also=also))
    with refuse_unwritable():
        if options.save is not None:
            found.save(options.save)
        if options.html is not None:
            _ask_for_page(found, has_cards=options.cards)
            found.to_html(options.html)
    return FINE if found.fits else FOUND


def _ask_for_page(plan: Plan, has_cards: bool) -> None:
    """Ask the other questions of a page; the cards were asked before. What cannot be answered has no tab."""
    questions: list[Callable[[], object]] = [plan.cheapest_change, plan.largest_batch]
    if plan.card and not has_cards:
        questions.append(plan.on_cards)
    for ask in questions:
        with contextlib.suppress(DevwidgetError):
            ask()


def _plan_by_name(options: Namespace) -> int:
    from devwidget.extras.plan import by_name
    from devwidget.extras.plan.words.plan import fits_words
    from devwidget.gpus.card_models import find_card
    from devwidget.report.style.units import format_bytes

    if options.html is not None or options.save is not None:
        raise DevwidgetError(
            Message("a model given by name has no page and no file"),
            why=Message("each row is a separate plan"),
            instead=Message("a step of it, such as plan train:step --html plan.html"),
        )
    if options.card is not None:
        find_card(options.card)
    name, where = options.subject.removeprefix(HUB), options.card or options.memory
    found = by_name.plan_by_name(name, options.gpus, options.memory, options.card, options.batch, options.length)
    facts = {
        "model": found.model,
        "parameters": f"{found.parameters / 1e9:.2f}",
        "batch": options.batch,
        "length": options.length,
    }
    title = say("{model}, {parameters} billion parameters, {batch} x {length} tokens", **facts)
    print(f"| {title} | {options.gpus} x {where} | |\n|---|---|---|")
    for row in found.rows:
        answer = say("not planned") if row.problem else fits_words(row.fits)
        print(f"| {said(row.what)} | {said(row.problem) or format_bytes(row.on_card)} | {answer} |")
    print(say("each is a step or a generation that was run without values; training uses the loop of Trainer"))
    if any(row.fits for row in found.rows):
        return FINE
    return FOUND
