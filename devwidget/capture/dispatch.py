"""Ops: a dispatch mode that logs every operator below autograd and each crossing between devices."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from devwidget.capture.state import State

_PARALLEL_CAUSES = ("scatter", "replicate", "gather", "reduce")
_MOVES = ("_to_copy", "copy_")
_names: dict[Any, str] = {}


def _name(func: Any) -> str:
    return _names.setdefault(func, func._schema.name.removeprefix("aten::"))


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


class Ops(TorchDispatchMode):
    """Logs operators; one instance for each thread."""

    def __init__(self, state: State) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._state = state
        self._places = state.places
        self._here = state.places.here

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call in `torch._dynamo.disable`: 2 us per operator, and a first import of 0.9 s. It is
        # not needed, because Dynamo skips every frame while a dispatch mode is active.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operator, then write down where it ran."""
        name = _names.get(func) or _name(func)
        if name in _MOVES:
            return self._moved(func, name, args, kwargs)
        out = func(*args, **kwargs) if kwargs else func(*args)
        self._log(name, args, out)
        return out

    def _log(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        first = out[0] if type(out) in (list, tuple) and out else out
        target = first.device if isinstance(first, torch.Tensor) else None
        site = self._places.site(sys._getframe(2))
        self._state.log.op(name, self._here.path, self._places.phase, site, _devices(args), target)

    def _moved(self, func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
        started = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        self._log(name, args, out)
        places, cause = self._places, self._here.cause
        before = args[1] if name == "copy_" else args[0]
        if isinstance(before, torch.Tensor) and before.device != out.device and cause not in _PARALLEL_CAUSES:
            seconds, site = time.perf_counter() - started, places.site(sys._getframe(1))
            self._state.log.move(before.device, out.device, (out,), places.module, places.phase, site, cause, seconds)
        return out
