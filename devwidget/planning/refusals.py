"""What cannot be planned, said before anything is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import torch

from devwidget.records.errors import DevwidgetError, nearest

_WORDS = ("as is", "data parallel", "auto")


def refuse(optimizer: object, placement: object) -> None:
    """Refuse what makes no sense.

    Raises:
        DevwidgetError: with what would have been right.
    """
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    if optimizer is not None and not issubclass(kind, torch.optim.Optimizer):
        raise DevwidgetError(f"the optimizer is a `{kind.__name__}`", instead="pass an optimizer or its class")
    if not isinstance(placement, Mapping) and placement not in _WORDS:
        raise DevwidgetError(
            f"{placement!r} is no placement{nearest(str(placement), _WORDS)}",
            instead=f"one of {', '.join(map(repr, _WORDS))}, or a dict such as {{'encoder': 0, 'head': 1}}",
        )
    if placement not in _WORDS[:2] and importlib.util.find_spec("accelerate") is None:
        raise DevwidgetError(
            "a device map needs accelerate",
            why="its hooks carry activations between the parts",
            instead="pip install accelerate",
        )
