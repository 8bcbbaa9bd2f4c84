"""Context of an exception: its frames, the modules that were running, and their model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, SimpleNamespace, TracebackType
from typing import Any

import torch
from torch import nn
from torch.overrides import handle_torch_function

from devwidget.capture import background_births, torch_internals
from devwidget.capture.explain.traceback_frames import innermost_user, traceback_frames
from devwidget.capture.faults.failed_call import FailedCall
from devwidget.capture.object_fields import is_a, is_among, is_exactly
from devwidget.capture.patches.worker_errors import worker_error
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.expressions import Call, failing_call
from devwidget.capture.source_code.frames import modules_named
from devwidget.capture.source_code.stack import is_users_code, locals_of
from devwidget.capture.tensors import is_module, is_optimizer, is_tensor, modules_in, named_tensors, walk_modules
from devwidget.records.errors import error_text, message
from devwidget.records.trace import Phase

ModuleCalled = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, and the arguments of its call."""


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """What is left of a failed program.

    Attributes:
        raised: the exception.
        error: the same, or the exception of a DataParallel worker behind it, if that was kept.
        frames: frames of its traceback, outermost first, including the worker's frames.
        state: as in a recording, without births.
    """

    raised: BaseException
    error: BaseException
    frames: tuple[FrameType, ...]
    state: RecordingState

    @property
    def user(self) -> FrameType | None:
        """Return the innermost frame of user code."""
        return innermost_user(self.frames)

    @property
    def below(self) -> tuple[FrameType, ...]:
        """Return the library frames below the user's line, then the user's frame, innermost first."""
        if self.user is None:
            return self.frames[::-1]
        return self.frames[self.frames.index(self.user) :][::-1]

    @property
    def error_text(self) -> str:
        """Return `ErrorType: message`."""
        return error_text(self.error)

    @property
    def message(self) -> str:
        """Return the text of the exception."""
        return message(self.error)

    def in_call(self, function: Any) -> FrameType | None:
        """Return the innermost frame of a given function."""
        return next((frame for frame in reversed(self.frames) if frame.f_code is function.__code__), None)

    def caller_of(self, frame: FrameType) -> FrameType:
        """Return the user frame above a library frame, or the frame itself."""
        return innermost_user(self.frames[: self.frames.index(frame)]) or frame


def context_of(error: BaseException, above: Sequence[TracebackType] = ()) -> ErrorContext:
    """Read an exception's traceback; `above` has the steps above the frame that caught it."""
    frames = traceback_frames(error.__traceback__, above)
    in_worker = worker_error(error)
    if in_worker is not None:
        frames += traceback_frames(in_worker.__traceback__)
    state = RecordingState(heal=False, older=background_births.get_background_births())
    running = []
    for frame in frames:
        module = locals_of(frame).get("self")
        if frame.f_code is torch_internals.module_call and is_module(module):
            running.append((module, frame))
    name, root = _root(frames, [module for module, _ in running])
    if root is not None:
        state.tracker.attach_model(root, name)
    for module, frame in running:
        wrapper = state.tracker.running
        if is_a(wrapper, nn.DataParallel):
            _name_replica(state, wrapper, module)
        state.tracker.enter_module(module, frame, 0.0, 0)
    state.tracker.forced = None if running else _phase(frames)
    if in_worker is None:
        return ErrorContext(error, error, tuple(frames), state)
    return ErrorContext(error, in_worker, tuple(frames), state)


def called_module(frame: FrameType) -> ModuleCalled | None:
    """Return the module that a frame of torch calls, with its arguments; None for all other frames."""
    if frame.f_code is not torch_internals.module_call:
        return None
    above = frame.f_back  # its arguments are those before the hooks, whose results this frame has
    if above is not None and above.f_code is torch_internals.outer_module_call:
        frame = above
    variables = locals_of(frame)
    module, args, kwargs = variables.get("self"), variables.get("args"), variables.get("kwargs")
    if is_module(module) and is_exactly(args, (tuple,)) and is_exactly(kwargs, (dict,)):
        return module, args, kwargs  # type: ignore[return-value]
    return None


def _name_replica(state: RecordingState, wrapper: nn.DataParallel[Any], replica: nn.Module) -> None:
    prefix = state.tracker.path_of(wrapper.module)
    for path, part in walk_modules(replica):
        state.tracker.name_module(part, f"{prefix}.{path}".strip("."))


def _root(frames: list[FrameType], running: list[nn.Module]) -> tuple[str, nn.Module | None]:
    """Return the model and its name: the module that holds the outermost running one, else the largest that the frames name."""
    users = (frame for frame in frames if is_users_code(frame.f_code))
    named = list(modules_named(users))
    if running:
        named = _find_around(named, running)
        if not named:
            return "", running[0]
    return max(named, key=lambda pair: len(modules_in(pair[1])), default=("", None))


def _find_around(named: list[tuple[str, nn.Module]], running: list[nn.Module]) -> list[tuple[str, nn.Module]]:
    """Return modules that hold the outermost running one. For a loss without parameters, return the modules next to it."""
    around, others = [], []
    for pair in named:
        if pair[1] is not running[0]:
            others.append(pair)
            if is_among(running[0], modules_in(pair[1])):
                around.append(pair)
    if around or any(next(named_tensors(each, "_parameters"), None) is not None for each in running):
        return around or [pair for pair in named if pair[1] is running[0]]
    return others


def _phase(frames: list[FrameType]) -> Phase:
    for frame in frames:
        place = frame.f_code.co_filename.rsplit("/", 1)[-1], frame.f_code.co_name
        if place in (("_tensor.py", "backward"), ("__init__.py", "backward")):
            return "backward"
    for frame in frames:
        if is_optimizer(locals_of(frame).get("self")):
            return "optimizer"
    return "other"


def run_readers(context: ErrorContext, readers: Iterable[Callable[[ErrorContext], None]]) -> None:
    """Run readers until one recognises the fault. An error in one must not hide the results of the others."""
    log = context.state.log
    before = len(log.faults)
    for reader in readers:
        try:
            if len(log.faults) == before:
                reader(context)
        except Exception as trouble:
            log.log_trouble(trouble)


def failed_calls(context: ErrorContext) -> Iterator[FailedCall]:
    """Yield the calls that the user's line and the library below it were making, innermost first."""
    if is_a(context.error, Exception):
        for frame in context.below:
            call = _call_of(frame)
            if call.func is torch_internals.run_backward:  # whose caller has names for what it is given
                continue
            yield FailedCall(context.state, call.func, call.args, call.kwargs, context.error, frame)


def _call_of(frame: FrameType) -> Call:
    """Return the call that a frame was making; without source, a call of its function with what its code names."""
    if frame.f_code is handle_torch_function.__code__:
        variables = locals_of(frame)
        return Call(variables["public_api"], tuple(variables["args"]), dict(variables["kwargs"]))
    call = failing_call(frame)
    if call is not None:
        return call
    code, tensors = frame.f_code, dict[str, torch.Tensor]()
    names = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    for name, value in locals_of(frame).items():
        if name in names and is_tensor(value):  # other names are of other cells of a notebook
            tensors[name] = value
    name = code.co_name
    is_of_library = name.startswith("<") or (name.startswith("_") and not is_users_code(code))
    function = SimpleNamespace(__name__="operation" if is_of_library else name)
    return Call(function, (), tensors)
