"""What can be done with a model that is known by its name: its configuration is read, its weights are not."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.validation import refuse_counts
from devwidget.extras.plan.fine_tuning import RANK, AdamW8bit, add_adapters
from devwidget.extras.plan.loops import TRAINER
from devwidget.extras.plan.make_plan import make_plan
from devwidget.extras.plan.records.answers import Generation, Room, Tried
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError, message, require_package
from devwidget.records.schema.message import Message

NEW_TOKENS = 256


@dataclass(frozen=True)
class ModelRows:
    """What was planned: `model` is a class of so many parameters."""

    model: str
    parameters: int
    rows: tuple[Tried, ...]


def plan_by_name(name: str, gpus: int, memory: str | None, card: str | None, batch: int, length: int) -> ModelRows:
    """Plan a generation and several ways of training, in the loop of Trainer, for a name of the hub or a `config.json` here.

    Over several GPUs, accelerate's map splits the model.

    Raises:
        DevwidgetError: if there is no such configuration, or it is of no model of texts.
    """
    refuse_counts(batch=batch, length=length)
    make, first = functools.partial(_make_model, _read_config(name)), _make_model(_read_config(name), torch.bfloat16)
    placement = "as is" if gpus == 1 else "auto"
    where = {"gpus": gpus, "memory": memory, "card": card, "placement": placement, "loss_fn": None}
    ids = torch.ones(batch, length, dtype=torch.long)

    def train(made: nn.Module, optimizer: Any, **more: Any) -> Plan:
        options = {**_OPTIONS, **more}
        batch = {"input_ids": ids, "labels": ids}
        return make_plan(made.train(), batch, None, {**where, "optimizer": optimizer}, options)

    def write() -> Generation:
        with torch.no_grad():
            plan = make_plan(first.eval(), {"input_ids": ids}, None, {**where, "optimizer": None}, _OPTIONS)
        return plan.generation(NEW_TOKENS)

    adam = torch.optim.AdamW
    ways: list[tuple[str, Callable[[], Plan | Generation]]] = [
        (Message("generation of {count} tokens, bfloat16", count=NEW_TOKENS), write),
        (Message("LoRA of rank {rank}, bfloat16, checkpointing", rank=RANK),
         lambda: train(add_adapters(make(torch.bfloat16)), adam, checkpointing=True)),
        (Message("training in bfloat16, 8-bit AdamW, checkpointing"),
         lambda: train(make(torch.bfloat16), AdamW8bit, checkpointing=True)),
        (Message("training in bfloat16, AdamW, checkpointing"), lambda: train(make(torch.bfloat16), adam, checkpointing=True)),
        (Message("training in bfloat16, AdamW"), lambda: train(make(torch.bfloat16), adam)),
        (Message("training in float32 with autocast, AdamW"),
         lambda: train(make(torch.float32), adam, autocast=torch.bfloat16)),
    ]  # fmt: skip
    rows = tuple(_plan_row(what, plan) for what, plan in ways)
    return ModelRows(type(first).__name__, sum(parameter.numel() for parameter in first.parameters()), rows)


_OPTIONS: dict[str, Any] = {
    "loop": TRAINER, "accumulate": 1, "autocast": False, "grad_scaler": False, "zero_grad": None, "checkpointing": False,
}  # fmt: skip


def _plan_row(what: str, plan: Callable[[], Plan | Generation]) -> Tried:
    try:
        found = plan()
    except DevwidgetError as error:
        return Tried(what, Room(0, 0, "does not fit"), error.what)
    return Tried(what, found.room)


def _read_config(name: str) -> Any:
    require_package("transformers", Message("a model by its name"))
    import transformers

    path = pathlib.Path(name)
    try:
        return transformers.AutoConfig.from_pretrained(path.parent if path.suffix == ".json" else name)
    except (OSError, ValueError, KeyError) as error:
        fails = Message("cannot load the configuration {name}: {error}", name=name, error=message(error))
        instead = Message("pass the path of its `config.json` if there is no network or the model is gated")
        raise DevwidgetError(fails, instead=instead) from error


def _make_model(config: Any, dtype: torch.dtype) -> nn.Module:
    import transformers

    kind = next((getattr(transformers, name, None) for name in config.architectures or ()), None)
    if kind is None or getattr(kind, "main_input_name", "") != "input_ids":
        what = Message("{kind} is not a language model", kind=type(config).__name__)
        raise DevwidgetError(what, instead=Message("devwidget.plan(model, batch, ...) with a batch of your own"))
    with torch.device("meta"):
        made: nn.Module = kind(config)
    return made.to(dtype)
