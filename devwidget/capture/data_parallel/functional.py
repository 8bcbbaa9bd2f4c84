"""`torch.nn.parallel.data_parallel`, the function: it takes the steps of the wrapper, and is watched as one."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture.data_parallel.steps import WrapperWatch
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import is_own
from devwidget.capture.undo import Undo

_FUNCTION = nn.parallel.data_parallel
_STEPS = {"scatter_kwargs": "scatter", "replicate": "replicate", "parallel_apply": "parallel_apply", "gather": "gather"}


def watch_functional(state: RecordingState, undo: Undo) -> None:
    """Watch each call of the function, which looks its steps up in its module: whoever has imported it calls the same one."""
    module, calls = sys.modules[_FUNCTION.__module__], _Calls(state)
    for name, step in _STEPS.items():
        undo.enter_context(make_patch(module, name, functools.partial(calls.wrap_step, step)))
    undo.add_step(calls.end_all)


class _Calls:
    """The calls of the function that are under way, by their frames."""

    def __init__(self, state: RecordingState) -> None:
        self._state = state
        self._open: dict[FrameType, WrapperWatch] = {}

    def wrap_step(self, step: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """One step of the function; the wrapper's methods call the same ones, and are watched themselves."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            frame = _find_caller(sys._getframe(1))
            # `data_parallel` makes no object that could be asked: the variables of its call tell what it was given.
            if frame is None or self._state.is_elsewhere() or len(frame.f_locals["device_ids"]) < 2:
                return original(*args, **kwargs)
            watch = self._begin_call(frame) if step == "scatter" else self._open.get(frame)
            if watch is None:
                return original(*args, **kwargs)
            try:
                out = getattr(watch, step)(functools.partial(original, **kwargs), *args)
            except BaseException:
                self._end_call(frame)
                raise
            if step == "gather":
                self._end_call(frame)
            return out

        return watched

    def _begin_call(self, frame: FrameType) -> WrapperWatch:
        given, tracker = frame.f_locals, self._state.tracker
        module = given["module"]
        tracker.enter_module(module, frame, time.perf_counter(), self._state.log.number())
        wrapper = _stand_in(module, given)
        self._open[frame] = watch = WrapperWatch(wrapper, self._state, tracker.path_of(module) or "", frame)
        return watch

    def _end_call(self, frame: FrameType) -> None:
        watch = self._open.pop(frame)
        watch.end_call()
        self._state.tracker.leave_module(frame.f_locals["module"])

    def end_all(self) -> None:
        """Calls that an interrupt has ended between two steps."""
        for frame in list(self._open):
            self._end_call(frame)


def _find_caller(frame: FrameType | None) -> FrameType | None:
    """The function's own frame, if it takes this step."""
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame if frame is not None and frame.f_code is _FUNCTION.__code__ else None


def _stand_in(module: nn.Module, given: dict[str, Any]) -> nn.DataParallel[Any]:
    """The wrapper that does the same; never called, for making one the usual way may warn, or move the module."""
    wrapper: nn.DataParallel[Any] = nn.DataParallel.__new__(nn.DataParallel)
    nn.Module.__init__(wrapper)
    wrapper.module, wrapper.dim = module, given["dim"]
    wrapper.device_ids, wrapper.output_device = given["device_ids"], given["output_device"]
    wrapper.src_device_obj = torch.device(given["device_type"], given["device_ids"][0])
    return wrapper
