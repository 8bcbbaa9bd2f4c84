"""A plan as a page in the panel's design: the answer with one action, then what was asked of it. No script draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from devwidget.extras.plan.evidence.compared import Compared, find_band, list_compared
from devwidget.extras.plan.page.answers import draw_batches, draw_cards, draw_changes, draw_generation, draw_sizes
from devwidget.extras.plan.page.marks import draw, draw_percent
from devwidget.extras.plan.page.sheet import draw_document, draw_header, draw_output
from devwidget.extras.plan.page.step import draw_step
from devwidget.extras.plan.records.answers import AskedSize, Changes, Fitted, Generation, LargestBatch, OnCards, Tried
from devwidget.extras.plan.records.plan import DevicePlan, Plan, questions_of
from devwidget.extras.plan.words.plan import answer_words, moment_words, tip_moment_words
from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.report.style.safe_text import Markup, draw_prose, join_html
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import code_word, row_words

# In a notebook, which holds every output that was ever shown.
_MOST_ROWS = 5


@presents("notebook", Plan)
def plan_in_notebook(plan: Plan) -> Markup:
    """The page as an output, with its style."""
    return draw_output(draw_plan(plan, most_rows=_MOST_ROWS))


@presents("html", Plan)
def plan_page(plan: Plan) -> str:
    """The page as a self-contained file."""
    return draw_document(f"{plan.model}: {answer_words(plan.fit)}", draw_plan(plan))


def draw_plan(plan: Plan, most_rows: int = 0) -> Markup:
    """The page: header, verdict, and a tab for each question that was asked.

    Args:
        most_rows: of published figures of each kind, those that are farthest off; 0 for all.
    """
    body = draw("body", list(_list_pages(plan, most_rows)))
    return draw("plan", _draw_header(plan), _draw_answer(plan), body)


def draw_live_parts(plan: Plan) -> dict[str, Any]:
    """The parts of the page between which a live one has its form; what was not asked has a button that asks."""
    tabs = [[name, str(page)] for name, page in _list_pages(plan, _MOST_ROWS, is_live=True)]
    return {"head": str(_draw_header(plan)), "verdict": str(_draw_answer(plan, is_live=True)), "tabs": tabs}


def _list_pages(plan: Plan, most_rows: int, is_live: bool = False) -> Iterator[tuple[str, Markup]]:
    """Names and contents of the tabs; what was not asked has none, and on a live page one that asks."""
    yield say("Step"), draw_step(plan)
    for name, kinds in _TABS.items():
        parts = [part for kind in kinds for part in _draw_answers(plan, kind, is_live)]
        if parts:
            yield said(name), join_html(*parts)
    yield say("How sure"), _draw_trust(most_rows)


_TABS: dict[str, tuple[type, ...]] = {
    Message("Changes"): (Changes,),
    Message("Batch × length"): (LargestBatch, Fitted),
    Message("Cards"): (OnCards,),
    Message("Generation"): (Generation,),
}
"""Name of a tab -> the answers that are in it."""
_QUESTIONS: dict[type, str] = {Changes: "changes", LargestBatch: "batch", Fitted: "sizes", OnCards: "cards"}
"""Answer -> the question that a live page offers."""


def _draw_answers(plan: Plan, kind: type, is_live: bool) -> Iterator[Markup]:
    """All answers of a kind; in place of none, on a live page, what asks for one."""
    answers = [answer for answer in plan.answers if isinstance(answer, kind)]
    yield from (_draw_answer_of(plan, answer) for answer in answers)
    if is_live and not answers and kind in _QUESTIONS:
        yield _draw_offer(_QUESTIONS[kind])


def _draw_answer_of(plan: Plan, answer: Any) -> Markup:
    if isinstance(answer, OnCards):
        return draw_cards(answer, size_words(plan) or _describe_step(plan))
    return _DRAWN_BY[type(answer)](answer)


_DRAWN_BY: dict[type, Callable[[Any], Markup]] = {
    Changes: draw_changes,
    LargestBatch: draw_batches,
    Fitted: draw_sizes,
    Generation: draw_generation,
}


def _describe_step(plan: Plan) -> str:
    return row_words(map(code_word, plan.phases))


def _draw_header(plan: Plan) -> Markup:
    facts = size_words(plan), plan.card, code_word(plan.placement), _describe_step(plan)
    return draw_header(plan.model, facts, plan.devices)


def size_words(plan: Plan) -> str:
    """Batch and length of the step, if they are known in this process."""
    questions = questions_of(plan)
    setting = questions.setting if questions is not None else AskedSize()
    if setting.batch and setting.length:
        return say("batch {batch} × length {length}", batch=f"{setting.batch:,}", length=f"{setting.length:,}")
    if setting.batch:
        return say("batch {batch}", batch=f"{setting.batch:,}")
    return ""


def _draw_answer(plan: Plan, is_live: bool = False) -> Markup:
    device = plan.tightest
    beside, action = _choose_action(plan)
    more = draw_prose(where_words(plan, device))
    return draw("verdict", plan.fit, verdict_words(plan, device), more, beside, _draw_action(action, is_live))


_ASKS = {"plan.cheapest_change()": "changes", "plan.largest_batch()": "batch", "plan.on_cards()": "cards"}
"""What is written -> the question that a live page asks in its place."""


def _draw_action(action: str, is_live: bool) -> Markup:
    if not action:
        return Markup("")
    if is_live and action in _ASKS:
        return _draw_ask(_ASKS[action], "dw-primary")
    return draw("code", action)


def verdict_words(plan: Plan, device: DevicePlan) -> str:
    """`Fits an A100-40GB with 3.7 GiB to spare:`."""
    facts = {"size": format_bytes(abs(device.capacity - device.on_card)), "where": plan.card or str(device.device)}
    if len(plan.devices) > 1:
        facts["where"] = say("{device} of {gpus}", device=device.device, gpus=count_words(len(plan.devices), "GPU"))
    if plan.fit == "does not fit":
        return say("Needs {size} more than {where} has:", **facts)
    if plan.fit == "fits by less":
        return say("Fits {where} by {size}, less than the error margin:", **facts)
    return say("Fits {where} with {size} to spare:", **facts)


def where_words(plan: Plan, device: DevicePlan) -> str:
    """How full it is, and when."""
    sizes = {"size": format_bytes(device.on_card), "capacity": format_bytes(device.capacity)}
    taken = say("{size} of {capacity}", **sizes)
    if not device.fits and device.tips_over is not None:
        moment = tip_moment_words(plan, device.tips_over)
        return row_words((taken, say("{moment} is the first to exceed it", moment=moment)))
    moment = moment_words(plan, device.peak_at)
    if not moment:
        return taken
    return row_words((taken, say("the peak is in {moment}", moment=moment)))


def _choose_action(plan: Plan) -> tuple[str, str]:
    """What is known of the next thing to do, and what to write for it."""
    asked = {type(each): each for each in plan.answers}
    changes, batch = asked.get(Changes), asked.get(LargestBatch)
    if plan.fit != "fits":
        if changes is None:
            return say("what would make it fit:"), "plan.cheapest_change()"
        if changes.cheapest is not None:
            return _describe_cheapest(changes.cheapest)
    if batch is None:
        return say("the largest possible batch:"), "plan.largest_batch()"
    action = "" if OnCards in asked else "plan.on_cards()"
    return say("the largest batch that fits by more than the error margin: {size}", size=batch.safe_size), action


def _describe_cheapest(change: Tried) -> tuple[str, str]:
    facts = {"change": said(change.what), "size": format_bytes(change.on_card)}
    if change.code:  # with the words, too, the verdict would take three lines
        return say("planned: {size}, fits", **facts), change.code
    return say("fits with {change}, planned: {size}", **facts), ""


_OFFERS = {
    "changes": (
        Message("What would make it fit"),
        Message("plan each change: what it saves, what it costs, and whether the step then fits"),
        Message("Plan changes"),
    ),
    "batch": (
        Message("The largest batch"),
        Message("plan a few batches, until one fits and one more sample does not"),
        Message("Find the largest batch"),
    ),
    "sizes": (
        Message("Batch × length"),
        Message("plan about 12 sizes around this one"),
        Message("Plan sizes around it"),
    ),
    "cards": (
        Message("What fits which card"),
        Message("plan this step, LoRA and inference on each known card, with a change where one does not fit"),
        Message("Plan other cards"),
    ),
}
"""Question -> its heading, what is run for it, and its button."""


def _draw_ask(question: str, look: str) -> Markup:
    return draw("button", said(_OFFERS[question][2]), look, "ask", question)


def _draw_offer(question: str) -> Markup:
    name, what, _ = _OFFERS[question]
    return join_html(draw("heading", said(name), said(what)), draw("paragraph", _draw_ask(question, "dw-button")))


# How sure a plan is: published figures next to their plans, as strips around a line where both are equal.

_KINDS = {
    "allocated": (Message("Allocated"), Message("max_memory_allocated, as it was published")),
    "reserved": (Message("Reserved"), Message("by the caching allocator")),
    "on the card": (Message("On the card"), Message("nvidia-smi; the context is in it")),
    "allocated by a rank": (Message("Allocated by a rank"), Message("of several, under DDP, ZeRO or FSDP")),
}
_REACH = 0.12
"""Half of what a strip shows, as a share."""
_NEAR = 0.02


def _draw_trust(most_rows: int) -> Markup:
    """Rows for each kind of figure, so many of each; to the left is planned too low, the unsafe side."""
    by_kind: dict[str, list[Compared]] = {kind: [] for kind in _KINDS}
    near = others = 0
    for row in list_compared():
        if not row.counts:
            others += 1
            continue
        by_kind[row.what].append(row)
        near += abs(row.off) <= _NEAR
    facts = {"near": near, "count": len(list_compared()) - others}
    more = say("{near} of {count} within 2 %: the grey; filled dots are inside; to the left is planned too low", **facts)
    ends = f"−{_REACH:.0%}", "0", f"+{_REACH:.0%}"
    strips = draw("strips", ends, [_describe_kind(kind, rows, most_rows) for kind, rows in by_kind.items()])
    heading = draw("heading", say("Planned against measured"), more)
    return join_html(heading, strips, draw("remark", say("What this is not."), _remark_words(others)))


def _describe_kind(kind: str, rows: list[Compared], most: int) -> tuple[object, ...]:
    band = find_band(kind)
    off = say("a card took up to {less} less and {more} more than planned", less=f"{band.less:.1%}", more=f"{band.more:.1%}")
    name, what = _KINDS[kind]
    farthest = sorted(rows, key=lambda row: -abs(row.off))[: most or len(rows)]
    left, closer = len(rows) - len(farthest), ""
    if left:
        closer = say("{count} more are closer", count=left)
    return said(name), f" {said(what)}; {off}", [_describe_row(row) for row in rows if row in farthest], closer


def _describe_row(row: Compared) -> tuple[object, ...]:
    at = 0.5 + max(min(row.off, _REACH), -_REACH) / (2 * _REACH)
    marks = (
        ("dw-band", f"left:{draw_percent(0.5 - _NEAR / (2 * _REACH))};width:{draw_percent(_NEAR / _REACH)}"),
        ("dw-zero", "left:50%"),
        ("dw-stem", f"left:{draw_percent(min(at, 0.5))};width:{draw_percent(abs(at - 0.5))}"),
        ("dw-point" if abs(row.off) <= _NEAR else "dw-point dw-outside", f"left:{draw_percent(at)}"),
    )
    return row.workload, marks, (format_bytes(row.most), format_bytes(row.planned), f"{row.off:+z.1%}".replace("-", "−"))


def _remark_words(others: int) -> str:
    words = say(
        "Allocated is counted, and close; reserved follows the rules of the allocator; on the card the context and other "
        "processes come on top, which no plan knows. Sources and causes: benchmarks/results/plans.md."
    )
    if others:
        words += " " + say("Left out here: {count} rows of another program than the one that was planned.", count=others)
    return f" {words}"
