"""The least that a recorder in Python can do which writes down of each operator what ours does: the floor of the same facts.

One thread, one device for each operand, no failures, no moves, no threads, no patches: nothing but the line of the user, the
module, the devices, what each tensor was computed from, and the calls and seconds of each module.
"""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_Tensor, _TENSORS = torch.Tensor, (torch.Tensor, torch.nn.Parameter)
_FOREIGN = ("/site-packages/", "/dist-packages/", sys.base_prefix)
_library: dict[str, bool] = {}


class Birth(weakref.ref):
    """A tensor, what it was computed from, and the line that did it."""

    __slots__ = ("dtype", "line", "number", "parents")


class BareFacts:
    """What is written down."""

    def __init__(self) -> None:
        self.paths: dict[int, str] = {}
        self.births: dict[int, Birth] = {}
        self.operators: dict[tuple[Any, ...], int] = {}
        self.modules: dict[str, list[Any]] = {}
        self.running: list[tuple[str, float, Any]] = []
        self.line: Any = None

    def began(self, module: torch.nn.Module, args: Any) -> None:
        if not self.running and id(module) not in self.paths:
            self.paths |= {id(each): path for path, each in module.named_modules()}
        self.running.append((self.paths[id(module)], time.perf_counter(), line_above(sys._getframe(2))))

    def ended(self, module: torch.nn.Module, args: Any, out: Any) -> None:
        path, started, _ = self.running.pop()
        entry = self.modules.setdefault(path, [0, 0.0, set(), set()])
        entry[0] += 1
        entry[1] += time.perf_counter() - started
        with torch._C.DisableTorchFunction():
            entry[2].update([each.device for each in args if type(each) is _Tensor])
            if type(out) is _Tensor:
                entry[3].add(out.device)


def line_above(frame: Any) -> tuple[int, int] | None:
    """Code and instruction of the innermost frame that is no library's."""
    while frame is not None:
        name = frame.f_code.co_filename
        foreign = _library.get(name)
        if foreign is None:
            foreign = _library[name] = any(each in name for each in _FOREIGN)
        if not foreign:
            return id(frame.f_code), frame.f_lasti
        frame = frame.f_back
    return None


class Functions(TorchFunctionMode):
    """What each tensor was computed from, and by which line."""

    def __init__(self, facts: BareFacts) -> None:
        super().__init__()
        self._facts, self._births = facts, facts.births

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "__get__":
            return func(*args)
        facts, births = self._facts, self._births
        line = facts.line = line_above(sys._getframe(1))
        out = func(*args, **(kwargs or {}))
        facts.line = None
        if type(out) is _Tensor:
            with torch._C.DisableTorchFunction():
                birth = births[id(out)] = Birth(out)
                birth.number, birth.line, birth.dtype, device = len(births), line, out.dtype, out.device
                birth.parents = [
                    known
                    for each in args
                    if (known := births.get(id(each))) is not None and known() is each and each.device == device
                ]
        return out


class Operators(TorchDispatchMode):
    """Each operator with its module, line and devices, and how often it ran."""

    def __init__(self, facts: BareFacts) -> None:
        super().__init__()
        self._facts, self._met = facts, facts.operators

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        facts, met = self._facts, self._met
        device = None
        for each in args:
            if type(each) in _TENSORS:
                device = each.device
                break
        path = facts.running[-1][0] if facts.running else ""
        key = id(func), path, facts.line or line_above(sys._getframe(1)), device, out.device if type(out) is _Tensor else None
        met[key] = met.get(key, 0) + 1
        return out


@contextlib.contextmanager
def bare_facts() -> Iterator[BareFacts]:
    """Write it down while the block runs."""
    facts = BareFacts()
    hooks = register_module_forward_pre_hook(facts.began), register_module_forward_hook(facts.ended)
    try:
        with Functions(facts), Operators(facts):
            yield facts
    finally:
        for hook in hooks:
            hook.remove()
