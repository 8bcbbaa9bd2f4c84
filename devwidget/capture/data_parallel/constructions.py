"""Where DataParallel wrappers are built; nothing else tells it afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import nn

from devwidget.capture.devices import visible
from devwidget.capture.object_fields import parts_of
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.descriptions import fault_at
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.frames import user_frames
from devwidget.capture.source_code.past.histories import construction
from devwidget.capture.undo import Undo
from devwidget.records.site import Site


def watch_constructions(state: RecordingState, undo: Undo) -> None:
    """Remember the line of each `nn.DataParallel(...)`."""

    def watched(original: Callable[..., None]) -> Callable[..., None]:
        def init(self: nn.DataParallel[Any], *args: Any, **kwargs: Any) -> None:
            try:
                original(self, *args, **kwargs)
            except AssertionError:
                report_absent(state, kwargs.get("device_ids") or next(iter(args[1:]), None), sys._getframe(1))
                raise
            if not state.is_elsewhere():
                state.tracker.made[self] = raw_site(sys._getframe(1))

        return init

    undo.enter_context(make_patch(nn.DataParallel, "__init__", watched))


def report_absent(state: RecordingState, device_ids: Any, frame: FrameType) -> None:
    """Write down the first of these numbers, as DataParallel was given them, that no GPU of this machine has."""
    kind = visible.kind_here()
    absent = next((i for i in parts_of(device_ids) if type(i) is int and i >= visible.count_of(kind)), None)
    if absent is not None and visible.count_of(kind):
        error, wanted = "AssertionError: Invalid device id", f"{kind}:{absent}"
        state.log.log_fault(fault_at(state.tracker, "device", "DataParallel", raw_site(frame), error=error,
                                 requested=wanted, available=visible.list_devices()))  # fmt: skip


def built_at(wrapper: nn.Module, state: RecordingState, caller: FrameType | None) -> Site | None:
    """The line that built a wrapper; the source tells it of one that is older than the recording."""
    known = to_site(state.tracker.made.get(wrapper))
    made = construction(list(user_frames(caller)), wrapper) if known is None else None
    return made.site if made is not None else known
