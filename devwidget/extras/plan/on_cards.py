"""What can be done with the model of a step on kinds of cards: the step, LoRA, inference, with changes where they need them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from devwidget.extras.plan.changes import Changed, change_optimizer, class_of_optimizer, has_wide_weights, is_adam
from devwidget.extras.plan.evidence.compared import Fit
from devwidget.extras.plan.fine_tuning import ADAPTED, RANK, AdamW8bit, add_adapters
from devwidget.extras.plan.loops import Loop
from devwidget.extras.plan.questions import Question, Wanted
from devwidget.extras.plan.records.answers import CardRow, OneCard
from devwidget.extras.plan.records.plan import Plan
from devwidget.gpus.card_models import find_card
from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

ALSO = "LoRA", "inference"
"""What may be planned beside the step."""


@dataclass(frozen=True)
class Try:
    """One way to run it, with its words; "" for the way as it is."""

    what: str = ""
    changed: Changed = field(default_factory=Changed)
    is_inference: bool = False


@dataclass(frozen=True)
class ModelUse:
    """One thing to do with the model: as it is, then with changes, the cheapest first."""

    what: str
    detail: str
    tries: tuple[Try, ...]


def list_uses(model: nn.Module, asked: dict[str, Any], phases: Sequence[Phase], also: Sequence[str] | None) -> list[ModelUse]:
    """List the step, and what is to be planned beside it; all that can be without `also`.

    Raises:
        DevwidgetError: for what is none, or for LoRA of a step without an optimizer.
    """
    trains = asked["optimizer"] is not None and "backward" in phases
    wanted = also if also is not None else ALSO if trains else ()
    for each in wanted:
        if each not in ALSO:
            what = Message("{also} is nothing to plan beside a step{hint}", also=repr(each), hint=nearest(str(each), ALSO))
            raise DevwidgetError(what, instead='plan.on_cards(also=("LoRA", "inference"))')
    if "LoRA" in wanted and not trains:
        raise DevwidgetError(Message("LoRA is for a step that trains"), instead="optimizer=torch.optim.AdamW")
    is_wide = has_wide_weights(model)
    uses = {"LoRA": _adapt, "inference": _infer}
    return [_describe_step(asked, trains), *(uses[each](asked, is_wide) for each in dict.fromkeys(wanted))]


def _describe_step(asked: dict[str, Any], trains: bool) -> ModelUse:
    if not trains:
        return ModelUse(Message("the step"), Message("as it was planned"), (Try(),))
    kind = class_of_optimizer(asked["optimizer"])
    changes = [Try(), *_checkpoint(asked, asked["optimizer"])]
    if is_adam(kind):
        eight = Changed(asked={"checkpointing": asked["checkpointing"] or True, "optimizer": AdamW8bit})
        changes.append(Try(Message("checkpointing and 8-bit AdamW"), eight))
    return ModelUse(Message("training"), Message("all weights, {optimizer}", optimizer=kind.__name__), tuple(changes))


def _adapt(asked: dict[str, Any], is_wide: bool) -> ModelUse:
    """LoRA, with the same class of optimizer, for the adapters; those stay as wide where the frozen weights do not."""
    optimizer = _renew_optimizer(asked["optimizer"])
    tries = [Try(), *_checkpoint(asked, optimizer)]
    if is_wide:
        changed = replace(tries[-1].changed, dtype=torch.bfloat16)
        tries.append(Try(Message("checkpointing and frozen weights in bfloat16"), changed))
    asks = {"optimizer": optimizer}
    adapted = (Changed(add_adapters, asks | each.changed.asked, each.changed.dtype) for each in tries)
    detail = Message("rank {rank} beside {names}", rank=RANK, names=", ".join(ADAPTED))
    return ModelUse("LoRA", detail, tuple(Try(each.what, changed) for each, changed in zip(tries, adapted, strict=True)))


def _infer(asked: dict[str, Any], is_wide: bool) -> ModelUse:
    loop = Loop(autocast=asked["loop"].autocast)
    nothing = {"optimizer": None, "loss_fn": None, "loop": loop, "checkpointing": False}
    tries = [Try("", Changed(nn.Module.eval, nothing), is_inference=True)]
    if is_wide:
        halved = Changed(nn.Module.eval, nothing, torch.bfloat16)
        tries.append(Try(Message("weights in bfloat16"), halved, is_inference=True))
    return ModelUse(Message("inference"), Message("one forward of the same batch"), tuple(tries))


def _checkpoint(asked: dict[str, Any], optimizer: Any) -> Iterator[Try]:
    if not asked["checkpointing"]:
        yield Try(Message("checkpointing"), Changed(asked={"checkpointing": True, "optimizer": optimizer}))


def _renew_optimizer(optimizer: Any) -> Any:
    """Return a class with the settings of an optimizer, which is for parameters that it has not seen."""
    if isinstance(optimizer, type):
        return optimizer
    known = inspect.signature(type(optimizer)).parameters
    return change_optimizer(type(optimizer), **{name: value for name, value in optimizer.defaults.items() if name in known})


def plan_row(use: ModelUse, cards: Sequence[str], plain: Sequence[OneCard] = ()) -> Question[CardRow]:
    """Plan one use on cards, which are given from the smallest; where it does not fit, with changes.

    From the largest down: changes that do not help there are not tried on a smaller one.

    Args:
        use: of the model.
        cards: their names.
        plain: what came of the use as it is, if it was planned before.
    """
    found: list[OneCard] = []
    changes = use.tries[1:]
    for at in reversed(range(len(cards))):
        tried = [plain[at] if plain else (yield from try_card(cards[at], use.tries[0]))]
        if tried[0].problem and not found:
            return CardRow(use.what, use.detail, problem=tried[0].problem)
        for change in changes if tried[0].fit != "fits" else ():
            tried.append((yield from try_card(cards[at], change)))
            if tried[-1].fit == "fits":
                break
        if not any(each.fits for each in tried):
            changes = ()
        found.append(min(tried, key=_rank_card))
    return CardRow(use.what, use.detail, tuple(reversed(found)))


def try_card(name: str, tried: Try) -> Question[OneCard]:
    """Plan the step on a card as a way to use the model has it."""
    changed = replace(tried.changed, asked={**tried.changed.asked, "card": name, "memory": None})
    try:
        plan = yield Wanted(changed, is_inference=tried.is_inference)
    except DevwidgetError as error:
        return OneCard(name, 0, find_card(name).memory_bytes, False, problem=error.what, change=tried.what)
    return describe_card(name, plan, tried.what)


def describe_card(name: str, plan: Plan, change: str = "") -> OneCard:
    """Return what a plan says of a card."""
    gpu = plan.tightest
    return OneCard(name, gpu.on_card, gpu.capacity, plan.fits, plan.fit == "fits by less", change=change)


_ORDER: dict[Fit, int] = {"fits": 0, "fits by less": 1, "does not fit": 2}


def _rank_card(card: OneCard) -> tuple[bool, int, int]:
    """Rank what came of a try: what fits by more first, the one with fewest changes; of what does not fit the smallest."""
    return bool(card.problem), _ORDER[card.fit], card.on_card if not card.fits else 0
