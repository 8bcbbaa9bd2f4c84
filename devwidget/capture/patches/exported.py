"""Exports: `torch.export` reads the program and runs nothing, so that recordings step aside until it is through."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching import eager_stance, registry
from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS
from devwidget.capture.patching.mode_stack import FunctionMode, dispatch_modes, restack_functions, without_dispatch_modes
from devwidget.capture.undo import Undo

_SIMULATOR = "devwidget.simulator."


def watch_exports(state: object, undo: Undo) -> None:
    """Have torch export as if nobody watched."""
    owners = [(torch.export, "export"), (sys.modules.get(torch_internals.DYNAMO.rpartition(".")[0]), "export")]
    if torch_internals.EXPORT in sys.modules and torch_internals.has_name("export"):
        owners.append(torch_internals.find_target("export"))  # which `export` calls, whoever has imported that
    for owner, name in owners:
        if hasattr(owner, name):
            undo.enter_context(registry.make_patch(owner, name, _wrap_export))


def _wrap_export(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        with _step_aside():
            out = original(*args, **kwargs)
        return (
            _wrap_export(out) if isinstance(out, FunctionType) else out
        )  # `torch._dynamo.export(f)` is given the inputs later

    return export


@contextlib.contextmanager
def _step_aside() -> Iterator[None]:
    """Nothing of a recording is in this thread's way. What a simulation needs stays, because labels are read by it."""
    simulated = any(map(_is_simulators, dispatch_modes()))
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_dispatch_modes(lambda mode: not _is_simulators(mode)))
        stack.enter_context(_without_function_modes())
        if simulated:
            stack.enter_context(_without_hooks())
        else:
            stack.enter_context(registry.suspend_layers())
            stack.enter_context(eager_stance.lift_stance())
        yield


@contextlib.contextmanager
def _without_hooks() -> Iterator[None]:
    """torch's own tables of module hooks, which dynamo reads into what it traces."""
    with Undo() as undo:
        MODULE_BEGINS.put_aside(undo)
        MODULE_ENDS.put_aside(undo)
        yield


def _is_simulators(mode: object) -> bool:
    return type(mode).__module__.startswith(_SIMULATOR)


@contextlib.contextmanager
def _without_function_modes() -> Iterator[None]:
    """Without those of recordings."""
    before = torch_internals.function_modes()
    restack_functions([mode for mode in before if not isinstance(mode, FunctionMode) or _is_simulators(mode)])
    try:
        yield
    finally:
        restack_functions(before)
