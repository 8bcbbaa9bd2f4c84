"""CollectivesOnly: a dispatch mode for what an operator on DTensors does inside, where the mode that logs operators is off."""

from __future__ import annotations

import sys
from typing import Any

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import module_name
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.capture.recording.collectives.calls import Collectives
from devwidget.capture.recording.collectives.kinds import KINDS


class CollectivesOnly(DispatchMode):
    """Sees the collectives by which DTensors are redistributed unasked; one instance for each operator."""

    def __init__(self, collectives: Collectives) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._collectives = collectives

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Note a collective; have DTensors take their operators apart, while this mode stays active."""
        if is_spread(types):
            return NotImplemented
        name = func._schema.name if isinstance(func, torch_internals.OpOverload) else ""
        if name in KINDS:
            self._collectives.begin(func, name, args, sys._getframe().f_back)
        return redispatch(func, types, args, kwargs)


def is_spread(types: tuple[type, ...]) -> bool:
    """Whether an operator that was given tensors of these classes has a DTensor among them."""
    return any(module_name(kind).startswith(torch_internals.DTENSORS) for kind in types)
