"""Compiled code: while somebody watches its eager original runs, because nothing of what was compiled can be watched."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching import registry
from devwidget.capture.patching.registry import patched
from devwidget.capture.recording.state import State
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message

FLEX = "torch.nn.attention.flex_attention"
NOTE = Message(
    "{kind}: {reason}",
    kind=Message("compiled code"),
    reason=Message(
        "its eager original ran, because compiled code cannot be watched; numbers may differ in the last digits, "
        "and dropout draws its random numbers as in eager"
    ),
)


def compiled(state: State, undo: Undo) -> None:
    """Run eager originals, and say so in the trace."""
    modules, has_any = torch_internals.target("has_any_global_hook")
    had_hooks = bool(getattr(modules, has_any)())
    # Compiled modules warn of global hooks; ours are no concern of the user's.
    undo.enter(patched(modules, has_any, lambda original: lambda: had_hooks))
    eager_originals(lambda: state.log.note(NOTE), undo)


def eager_originals(ran: Callable[[], None], undo: Undo) -> None:
    """Have what `torch.compile` made run as if it had not been compiled; what is compiled already stays so for later.

    Args:
        ran: told when compiled code of the user is called.
    """
    if torch_internals.DYNAMO in sys.modules:
        _eager(ran, undo)
    else:
        undo.enter(patched(torch, "compile", functools.partial(_loading, undo, ran)))


def _loading(undo: Undo, ran: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` that loads the compiler first; to load it for everybody would cost a second."""

    def compile(*args: Any, **kwargs: Any) -> Any:
        if torch_internals.DYNAMO not in sys.modules:
            _eager(ran, undo)
        return original(*args, **kwargs)

    return compile


def _eager(ran: Callable[[], None], undo: Undo) -> None:
    dynamo: Any = sys.modules[torch_internals.DYNAMO]

    def _callback_from_stance(callback: Any) -> Any:
        if callback in (None, False):
            return callback
        if getattr(getattr(callback, "_torchdynamo_orig_backend", None), "_export", False):
            return callback  # `torch.export` runs nothing, it only reads the code
        if not _is_library(sys._getframe(2)):
            ran()
        return None

    undo.enter(patched(dynamo, "_callback_from_stance", lambda original: _callback_from_stance))
    force(dynamo, undo)
    _quiet_attention(undo)


def force(dynamo: Any, undo: Undo) -> None:
    """Nothing is compiled, and eager originals run.

    A stance that the user takes meanwhile stays, and gives back later one that means what was there before.
    """
    eager = dynamo.DynamoStance("force_eager")
    layer = registry.standing(dynamo, "_stance", eager)
    undo.add(_mean, eager, layer)
    undo.enter(layer)


def _mean(eager: Any, layer: registry.Layer) -> None:
    if layer.below is not registry.ABSENT:
        vars(eager).update(vars(layer.below))


def _is_library(frame: FrameType) -> bool:
    """Whether torch itself compiled what is called here, for a higher-order operator."""
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith(torch_internals.HIGHER_ORDER) or name == FLEX


def _quiet_attention(undo: Undo) -> None:
    """No advice to compile `flex_attention` where it is compiled, though its eager original runs."""
    flex: Any = sys.modules.get(FLEX)
    if getattr(flex, "_warn_once", None) is not None:
        undo.enter(patched(flex, "_warn_once", _unless_compiled))


def _unless_compiled(original: Callable[..., None]) -> Callable[..., None]:
    def _warn_once(*args: Any, **kwargs: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "compile_wrapper" and frame.f_globals.get("__name__") == torch_internals.DYNAMO:
                return
            frame = frame.f_back
        original(*args, **kwargs)

    return _warn_once
