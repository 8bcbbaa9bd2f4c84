"""Show warnings at the line that called torch. Python would name the line of a mode that passed the call on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import FrameType

from devwidget.capture.patching.registry import make_patch
from devwidget.capture.source_code.stack import caller_of_function, is_own
from devwidget.capture.undo import Undo

_Show = Callable[[warnings.WarningMessage], None]


def show_lines_of_callers(undo: Undo) -> None:
    """Issue each warning that Python places in devwidget again, at the line where it would be without devwidget."""
    undo.enter_context(make_patch(warnings, "_showwarnmsg", _wrap_showing))


def _wrap_showing(original: _Show) -> _Show:
    def show(warning: warnings.WarningMessage) -> None:
        passing = _find_passing_frame(warning)
        frame = caller_of_function(passing)
        if passing is None or frame is None:
            original(warning)
            return
        # Python counts what it has shown per line. Our line stands for many, so nothing is counted there.
        passing.f_globals["__warningregistry__"] = None
        vars(warnings)["onceregistry"].pop((str(warning.message), warning.category), None)
        warnings.warn_explicit(
            warning.message,
            warning.category,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
            source=warning.source,
        )

    return show


def _find_passing_frame(warning: warnings.WarningMessage) -> FrameType | None:
    if not is_own(warning.filename):
        return None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (warning.filename, warning.lineno):
        frame = frame.f_back
    return frame
