"""Ops: a dispatch mode that logs every operator below autograd and each crossing between devices."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from devwidget.capture.call_site import raw_site
from devwidget.capture.state import State

_PARALLEL_CAUSES = ("scatter", "replicate", "gather", "reduce")
_names: dict[Any, str] = {}


def _name(func: Any) -> str:
    name = _names.get(func)
    if name is None:
        name = _names.setdefault(func, func._schema.name.removeprefix("aten::"))
    return name


def _devices(args: tuple[Any, ...]) -> tuple[torch.device, ...]:
    """Devices of the tensors, each once, lists opened one level."""
    found: list[torch.device] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg.device not in found:
                found.append(arg.device)
        elif type(arg) in (list, tuple):
            for part in arg:
                if isinstance(part, torch.Tensor) and part.device not in found:
                    found.append(part.device)
    return tuple(found)


class Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Logs operators; one instance for each thread."""

    def __init__(self, state: State) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._state = state

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call in `torch._dynamo.disable`: 2 us per operator, and a first import of 0.9 s. It is
        # not needed, because Dynamo skips every frame while a dispatch mode is active.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator, then write down where it ran."""
        started = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        state, name = self._state, _name(func)
        places, site = state.places, raw_site(sys._getframe(1))
        first = out[0] if type(out) in (list, tuple) and out else out
        target = first.device if isinstance(first, torch.Tensor) else None
        inputs = _devices(args)
        state.log.op(name, places.module, places.phase, site, inputs, target)
        if target is not None and name in ("_to_copy", "copy_") and places.here.cause not in _PARALLEL_CAUSES:
            source = inputs[0] if name == "_to_copy" else args[1].device if isinstance(args[1], torch.Tensor) else target
            if source != target:
                seconds = time.perf_counter() - started
                state.log.move(source, target, (first,), places.module, places.phase, site, places.here.cause, seconds)
        return out
