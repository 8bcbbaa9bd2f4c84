"""What a program would notice of devwidget's modes: other kernels of attention, and warnings at lines of ours."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import everywhere, listen
from devwidget.capture.source_code.stack import caller_of_function, is_own
from devwidget.capture.undo import Undo

_PLAIN = (torch.Tensor, nn.Parameter)


def stay_unnoticed(undo: Undo) -> None:
    """Have torch choose the same kernels as without a recording, and Python show warnings at the same lines."""
    fast_paths(undo)
    show_lines_of_callers(undo)


def fast_paths(undo: Undo) -> None:
    """Make `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` choose the same kernels as without a recording.

    Both choose by calling `torch.overrides.has_torch_function` under that name. Other kernels differ in the last bits.
    """
    listen(everywhere, torch.overrides, "has_torch_function", _has_torch_function, undo)


def _has_torch_function(original: Callable[[Iterable[Any]], bool], relevant_args: Iterable[Any]) -> bool:
    modes = torch_internals.function_modes()
    args = tuple(relevant_args)
    if not modes or any(not type(mode).__module__.startswith("devwidget.capture") for mode in modes):
        return bool(original(args))  # also in threads that are not watched
    return any(_overrides_function(type(arg)) for arg in args)


def _overrides_function(kind: type) -> bool:
    implementation = getattr(kind, "__torch_function__", None)
    return not any(kind is each for each in _PLAIN) and implementation not in (None, torch_internals.disabled_torch_function)


def show_lines_of_callers(undo: Undo) -> None:
    """Issue each warning that Python places in devwidget again, at the line where it would be without devwidget."""
    listen(everywhere, warnings, "_showwarnmsg", _show_warning, undo)


def _show_warning(original: Callable[[warnings.WarningMessage], None], warning: warnings.WarningMessage) -> None:
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


def _find_passing_frame(warning: warnings.WarningMessage) -> FrameType | None:
    if not is_own(warning.filename):
        return None
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (warning.filename, warning.lineno):
        frame = frame.f_back
    return frame
