"""What can be done with the model of a step on kinds of cards: the step, LoRA, inference, with changes where they need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from devwidget.extras.plan.changes import (
    Changed,
    Option,
    change_optimizer,
    class_of_optimizer,
    has_wide_weights,
    is_adam,
    settings_of,
)
from devwidget.extras.plan.fine_tuning import ADAPTED, RANK, AdamW8bit, add_adapters
from devwidget.extras.plan.loops import Loop
from devwidget.extras.plan.questions import Question, rank_tried, try_option
from devwidget.extras.plan.records.answers import AskedSize, CardRow, Tried
from devwidget.gpus.card_models import find_card
from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

ALSO = "LoRA", "inference"
"""What may be planned in addition to the step."""


@dataclass(frozen=True)
class ModelUse:
    """One thing to do with the model: unchanged, then with changes, the cheapest first."""

    what: str
    detail: str
    tries: tuple[Option, ...]


def list_uses(model: nn.Module, asked: dict[str, Any], phases: Sequence[Phase], also: Sequence[str] | None) -> list[ModelUse]:
    """List the step, and what else is to be planned; all that can be without `also`.

    Raises:
        DevwidgetError: for what is none, or for LoRA of a step without an optimizer.
    """
    trains = asked["optimizer"] is not None and "backward" in phases
    wanted: Sequence[str] = also or ()
    if also is None and trains:
        wanted = ALSO
    for each in wanted:
        if each not in ALSO:
            what = Message("`also` cannot be {also}{hint}", also=repr(each), hint=nearest(str(each), ALSO))
            raise DevwidgetError(what, instead='plan.on_cards(also=("LoRA", "inference"))')
    if "LoRA" in wanted and not trains:
        raise DevwidgetError(Message("LoRA is for a step that trains"), instead="optimizer=torch.optim.AdamW")
    is_wide = has_wide_weights(model)
    uses = {"LoRA": _adapt, "inference": _infer}
    return [_describe_step(asked, trains), *(uses[each](asked, is_wide) for each in dict.fromkeys(wanted))]


def _describe_step(asked: dict[str, Any], trains: bool) -> ModelUse:
    if not trains:
        return ModelUse(Message("the step"), Message("as it was planned"), (Option(),))
    kind = class_of_optimizer(asked["optimizer"])
    tries = [Option(), *_checkpoint(asked)]
    if is_adam(kind):
        eight = Changed(asked={"checkpointing": asked["checkpointing"] or True, "optimizer": AdamW8bit})
        tries.append(Option(Message("checkpointing and 8-bit AdamW"), eight))
    return ModelUse(Message("training"), Message("all weights, {optimizer}", optimizer=kind.__name__), tuple(tries))


def _adapt(asked: dict[str, Any], is_wide: bool) -> ModelUse:
    """LoRA, with the same class of optimizer, for the adapters; those stay as wide where the frozen weights do not."""
    tries = [Option(), *_checkpoint(asked)]
    if is_wide:
        narrow = replace(tries[-1].changed, dtype=torch.bfloat16)
        tries.append(Option(Message("checkpointing and frozen weights in bfloat16"), narrow))
    optimizer = {"optimizer": _renew_optimizer(asked["optimizer"])}
    adapted = (replace(each.changed, prepare=add_adapters, asked=each.changed.asked | optimizer) for each in tries)
    detail = Message("rank {rank} on {names}", rank=RANK, names=", ".join(ADAPTED))
    return ModelUse("LoRA", detail, tuple(Option(each.what, changed) for each, changed in zip(tries, adapted, strict=True)))


def _infer(asked: dict[str, Any], is_wide: bool) -> ModelUse:
    loop = Loop(autocast=asked["loop"].autocast)
    nothing = {"optimizer": None, "loss_fn": None, "loop": loop, "checkpointing": False}
    forward = Changed(nn.Module.eval, nothing, is_inference=True)
    tries = [Option(changed=forward)]
    if is_wide:
        tries.append(Option(Message("weights in bfloat16"), replace(forward, dtype=torch.bfloat16)))
    return ModelUse(Message("inference"), Message("one forward of the same batch"), tuple(tries))


def _checkpoint(asked: dict[str, Any]) -> Iterator[Option]:
    if not asked["checkpointing"]:
        yield Option(Message("checkpointing"), Changed(asked={"checkpointing": True}))


def _renew_optimizer(optimizer: Any) -> Any:
    """Return a class with the settings of an optimizer, which is for parameters that it has not seen."""
    if isinstance(optimizer, type):
        return optimizer
    return change_optimizer(type(optimizer), **settings_of(optimizer))


def plan_row(use: ModelUse, cards: Sequence[AskedSize], plain: Sequence[Tried] = ()) -> Question[CardRow]:
    """Plan one use on cards, which are given from the smallest; where it does not fit, with changes.

    From the largest down: changes that do not help there are not tried on a smaller one.

    Args:
        cards: the settings of the step on them.
        plain: the result of the unchanged use, if it was planned before.
    """
    found: list[Tried] = []
    changes = use.tries[1:]
    for at in reversed(range(len(cards))):
        tried = [plain[at] if plain else (yield from try_card(use.tries[0], cards[at]))]
        if tried[0].problem and not found:
            return CardRow(use.what, use.detail, problem=tried[0].problem)
        for change in changes:
            if tried[-1].fit == "fits":
                break
            tried.append((yield from try_card(change, cards[at])))
        if not any(each.fits for each in tried):
            changes = ()
        found.append(min(tried, key=rank_tried))
    return CardRow(use.what, use.detail, tuple(reversed(found)))


def try_card(option: Option, setting: AskedSize) -> Question[Tried]:
    """Plan the step on a card as a way to use the model has it."""
    asked = {**option.changed.asked, "card": setting.card, "memory": None}
    there = replace(option, changed=replace(option.changed, asked=asked))
    return (yield from try_option(there, find_card(setting.card).memory_bytes, setting))
