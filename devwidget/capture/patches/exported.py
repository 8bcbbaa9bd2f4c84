"""Exports: `torch.export` reads the program and runs nothing, so that recordings step aside until it is through."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, ClassVar

import torch
from torch.nn.modules import module as torch_modules

from devwidget.capture import torch_internals
from devwidget.capture.patching import registry
from devwidget.capture.patching.global_hooks import GlobalHook
from devwidget.capture.patching.mode_stack import DispatchMode, FunctionMode
from devwidget.capture.undo import Undo

_SIMULATOR = "devwidget.simulator."


def exports(state: object, undo: Undo) -> None:
    """Have torch export as if nobody watched."""
    owners = [(torch.export, "export"), (sys.modules.get(torch_internals.DYNAMO.rpartition(".")[0]), "export")]
    owners.append((sys.modules.get(torch_internals.EXPORT), "_export"))  # which `export` calls, whoever has imported that
    for owner, name in owners:
        if owner is not None:
            undo.enter(registry.patched(owner, name, _apart))


def _apart(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        with _aside():
            out = original(*args, **kwargs)
        return _apart(out) if isinstance(out, FunctionType) else out  # `torch._dynamo.export(f)` is given the inputs later

    return export


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """Nothing of a recording is in this thread's way. What a simulation needs stays, because labels are read by it."""
    modes = torch_internals.dispatch_modes()
    simulated = any(type(mode).__module__.startswith(_SIMULATOR) for mode in modes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without(modes, DispatchMode, _pop, _push))
        functions, pop, push = (
            torch_internals.function_modes(),
            torch_internals.pop_function_mode,
            torch_internals.push_function_mode,
        )
        stack.enter_context(_without(functions, FunctionMode, pop, push))
        stack.enter_context(_Hooks.without_ours())
        if not simulated:
            stack.enter_context(registry.suspended())
        yield


def _pop() -> Any:
    return torch_internals.pop_dispatch_mode(None)


def _push(mode: Any) -> None:
    torch_internals.push_dispatch_mode(mode)


@contextlib.contextmanager
def _without(modes: list[Any], kind: type, pop: Callable[[], Any], push: Callable[[Any], None]) -> Iterator[None]:
    """A stack of modes without those of recordings."""
    others = [mode for mode in modes if not isinstance(mode, kind) or type(mode).__module__.startswith(_SIMULATOR)]
    _replace(modes, others, pop, push)
    try:
        yield
    finally:
        _replace(others, modes, pop, push)


def _replace(before: list[Any], after: list[Any], pop: Callable[[], Any], push: Callable[[Any], None]) -> None:
    for _ in before:
        pop()
    for mode in after:
        push(mode)


class _Hooks:
    """torch's tables of module hooks, which dynamo reads into what it traces.

    Other threads may be inside a table: it is exchanged for one without ours, and not changed.
    """

    lock = threading.Lock()
    exports = 0
    tables: ClassVar[dict[str, Any]] = {}

    @classmethod
    @contextlib.contextmanager
    def without_ours(cls) -> Iterator[None]:
        with cls.lock:
            cls.exports += 1
            if cls.exports == 1:
                cls.tables = {
                    name: getattr(torch_modules, name) for name in ("_global_forward_pre_hooks", "_global_forward_hooks")
                }
                for name, table in cls.tables.items():
                    others = OrderedDict((key, hook) for key, hook in list(table.items()) if not isinstance(hook, GlobalHook))
                    setattr(torch_modules, name, others)
        try:
            yield
        finally:
            with cls.lock:
                cls.exports -= 1
                if not cls.exports:
                    for name, table in cls.tables.items():
                        setattr(torch_modules, name, table)
