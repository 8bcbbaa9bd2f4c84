"""Run the eager original of compiled code during a recording, and pause the recording during exports, which run nothing."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.patching import registry
from devwidget.capture.patching.global_hooks import MODULE_BEGINS, MODULE_ENDS
from devwidget.capture.patching.mode_stack import FunctionMode, dispatch_modes, restack_functions, without_dispatch_modes
from devwidget.capture.patching.registry import Patch, everywhere, listen
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message

FLEX = "torch.nn.attention.flex_attention"
NOTE = Message(
    "{kind}: {reason}",
    kind=Message("compiled code"),
    reason=Message(
        "the eager original ran, because compiled code cannot be recorded; numbers may differ in the last digits, "
        "and dropout draws random numbers as in eager mode"
    ),
)


def watch_compilation(state: RecordingState, undo: Undo) -> None:
    """Run eager originals, and note it in the trace."""
    modules, has_any = torch_internals.find_target("has_any_global_hook")
    had_hooks = bool(getattr(modules, has_any)())
    # Compiled modules warn of global hooks; ours are no concern of the user's.
    undo.enter_context(Patch(modules, has_any, lambda original: lambda: had_hooks))
    eager_originals(state.log.add_note, undo)


def eager_originals(say: Callable[[Message], None], undo: Undo) -> None:
    """Run the eager original of functions from `torch.compile`. Compiled code stays compiled for later.

    Args:
        say: called with a note when compiled code of the user is called, and when this torch lacks support.
    """
    if torch_internals.DYNAMO in sys.modules:
        _run_eagerly(say, undo)
    else:
        listen(everywhere, torch, "compile", functools.partial(_load_before_compiling, undo, say), undo)


def _load_before_compiling(
    undo: Undo, say: Callable[[Message], None], original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Load the compiler before `torch.compile` does. Loading it in every recording would cost a second."""
    if torch_internals.DYNAMO not in sys.modules:
        _run_eagerly(say, undo)
    return original(*args, **kwargs)


def _run_eagerly(say: Callable[[Message], None], undo: Undo) -> None:
    for name, put_in in (("compiler_stance", force_eager), ("callback_from_stance", functools.partial(_note_calls, say))):
        if torch_internals.has_name(name):
            put_in(undo)
        else:
            path = f"`{torch_internals.OPTIONAL[name]}`"
            lacks = Message("torch {version} has no {names}", version=torch.__version__, names=path)
            say(Message("{kind}: {reason}", kind=Message("what compiled code does"), reason=lacks))


def force_eager(undo: Undo) -> None:
    """Keep torch from compiling until it is undone. With `fullgraph=True` it raises where it finds a mode.

    A stance set by the user meanwhile stays. It restores ours at its end, which then means the previous one.
    """
    owner, name = torch_internals.find_target("compiler_stance")
    before = vars(owner)[name]
    eager = type(before)("force_eager")
    undo.add_step(vars(eager).update, vars(before))
    undo.enter_context(registry.Patch(owner, name, value=eager))


def _note_calls(say: Callable[[Message], None], undo: Undo) -> None:
    """Run the eager original wherever torch asks for the compiler, whatever stance the user sets meanwhile."""
    listen(everywhere, *torch_internals.find_target("callback_from_stance"), functools.partial(_no_callback, say), undo)


def _no_callback(say: Callable[[Message], None], original: Callable[..., Any], callback: Any) -> Any:
    if callback in (None, False):
        return callback
    if getattr(getattr(callback, "_torchdynamo_orig_backend", None), "_export", False):
        return callback  # `torch.export` runs nothing, it only reads the code
    # Past the hub, and past dynamo's own function, which asks for the callback: above it is who called the compiled one.
    if not _is_library(sys._getframe(3)):
        say(NOTE)
    return None


def _is_library(frame: FrameType) -> bool:
    """Return whether torch itself compiled what is called, for a higher-order operator."""
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith(torch_internals.HIGHER_ORDER) or name == FLEX


_SIMULATOR = "devwidget.gpus."


def watch_exports(state: object, undo: Undo) -> None:
    """Make torch export as without a recording."""
    owners = [(torch.export, "export"), (sys.modules.get(torch_internals.DYNAMO.rpartition(".")[0]), "export")]
    if torch_internals.EXPORT in sys.modules and torch_internals.has_name("export"):
        owners.append(torch_internals.find_target("export"))  # which `export` calls even if it was imported before
    for owner, name in owners:
        if hasattr(owner, name):
            undo.enter_context(registry.Patch(owner, name, _wrap_export))


def _wrap_export(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        with _step_aside():
            out = original(*args, **kwargs)
        # `torch._dynamo.export(f)` is given the inputs later
        if isinstance(out, FunctionType):
            return _wrap_export(out)
        return out

    return export


@contextlib.contextmanager
def _step_aside() -> Iterator[None]:
    """Remove the recording's modes from this thread. The modes of a simulation stay, because they keep the device labels."""
    functions = torch_internals.function_modes()
    with without_dispatch_modes(lambda mode: not _is_simulators(mode)), Undo() as undo:
        undo.add_step(restack_functions, functions)
        restack_functions(list(itertools.filterfalse(_is_recordings, functions)))
        if dispatch_modes():  # dynamo reads torch's tables of module hooks into what it traces
            MODULE_BEGINS.put_aside(undo)
            MODULE_ENDS.put_aside(undo)
        else:
            undo.enter_context(registry.suspend_patches())
        yield


def _is_recordings(mode: object) -> bool:
    return isinstance(mode, FunctionMode) and not _is_simulators(mode)


def _is_simulators(mode: object) -> bool:
    return type(mode).__module__.startswith(_SIMULATOR)
