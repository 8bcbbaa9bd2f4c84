"""What cannot be planned, said before anything is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import torch

from devwidget.records.errors import DevwidgetError, nearest
from devwidget.records.schema.message import Message

_WORDS = ("as is", "data parallel", "auto")


def refuse(optimizer: object, placement: object) -> None:
    """Refuse what makes no sense.

    Raises:
        DevwidgetError: with what would have been right.
    """
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    if optimizer is not None and not issubclass(kind, torch.optim.Optimizer):
        raise DevwidgetError(
            Message("the optimizer is a `{kind}`", kind=kind.__name__), instead=Message("pass an optimizer or its class")
        )
    if not isinstance(placement, Mapping) and placement not in _WORDS:
        raise DevwidgetError(
            Message("{placement} is no placement{hint}", placement=repr(placement), hint=nearest(str(placement), _WORDS)),
            instead=Message("one of {known}, or a dict such as {'encoder': 0, 'head': 1}", known=", ".join(map(repr, _WORDS))),
        )
    if placement not in _WORDS[:2] and importlib.util.find_spec("accelerate") is None:
        raise DevwidgetError(
            Message("a device map needs accelerate"),
            why=Message("its hooks carry activations between the parts"),
            instead="pip install accelerate",
        )
