"""The line that an allocation of the rehearsed step comes from: of the model or of the loss, whoever wrote them."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import sysconfig
from types import FrameType, TracebackType

import torch

from devwidget.capture.source_code.call_sites import RawSite, is_own, site_of

_FOLDERS = tuple(str(pathlib.Path(sysconfig.get_path(name))) + "/" for name in ("stdlib", "platstdlib"))
_PACKAGES = ("/site-packages/", "/dist-packages/")
_BOTTOM = ("run_phase", "make_plan")
"""The functions below which everything happens."""


def line_below(frame: FrameType | None) -> RawSite | None:
    """The innermost line that is neither torch's nor ours; None if the step itself is reached first, as in backward."""
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        if frame.f_code.co_name in _BOTTOM and is_own(frame.f_code.co_filename):
            return None
        frame = frame.f_back
    return None if frame is None else site_of(frame)


def deepest_line(traceback: TracebackType | None) -> RawSite | None:
    """The innermost such line that an exception passed."""
    found = None
    while traceback is not None:
        if not _is_machinery(traceback.tb_frame.f_code.co_filename):
            found = RawSite(traceback.tb_frame.f_code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found


@functools.cache
def _is_machinery(filename: str) -> bool:
    installed = any(mark in filename for mark in _PACKAGES)
    if is_own(filename) or filename.startswith(("<", *_machinery())):
        return True
    return filename.startswith(_FOLDERS) and not installed


@functools.cache
def _machinery() -> tuple[str, ...]:
    """Where torch lives, and accelerate, whose hooks stand between the parts of a model."""
    found = importlib.util.find_spec("accelerate")
    homes = [torch.__file__, *([found.origin] if found is not None and found.origin else [])]
    return tuple(str(pathlib.Path(home).parent) + "/" for home in homes)
