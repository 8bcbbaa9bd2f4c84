"""The user's line behind an event: the first frame that is not library code."""

from __future__ import annotations

import inspect
import itertools
import pathlib
import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any

from torch.overrides import handle_torch_function

from devwidget.capture import source
from devwidget.records.site import Site


class RawSite:
    """Code object and offset of an instruction: cheap to take, resolved to a `Site` only when somebody reads it.

    There is one object for each place, so that it can be compared and hashed by identity: the hash of a code object is
    computed from all that is in it, each time.
    """

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int) -> None:
        self.code, self.offset = code, offset


_PACKAGE = str(pathlib.Path(__file__).resolve().parent.parent) + "/"
_LIBRARY_FOLDERS = tuple(
    {_PACKAGE, *(str(pathlib.Path(path)) + "/" for path in sysconfig.get_paths().values())}
    - {str(pathlib.Path(sysconfig.get_path("data"))) + "/"}  # the prefix itself; people keep projects under it
)
_LIBRARY_MARKS = ("/site-packages/", "/dist-packages/")
_RELAY = handle_torch_function.__code__
known_library: dict[str, bool] = {}
"""What `is_library` has answered, for walks through many frames."""
_sites: dict[tuple[int, int], RawSite] = {}


def is_library(filename: str) -> bool:
    """True for torch, the standard library, installed packages, generated code and devwidget itself."""
    known = known_library.get(filename)
    if known is None:
        generated = filename.startswith(("<frozen", "<eval_with_key", "<__"))
        known = generated or filename.startswith(_LIBRARY_FOLDERS) or any(m in filename for m in _LIBRARY_MARKS)
        known_library[filename] = known
    return known


def is_own(filename: str) -> bool:
    """True for devwidget itself."""
    return filename.startswith(_PACKAGE)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of user code at or above `frame`, None if there is none."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def caller(frame: FrameType | None) -> FrameType | None:
    """The frame that called a torch function: ours and torch's own relay are skipped."""
    while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_code is _RELAY):
        frame = frame.f_back
    return frame


def raw_site(frame: FrameType | None) -> RawSite | None:
    """Where the user's code stands above `frame`."""
    found = user_frame(frame)
    return None if found is None else site_of(found)


def site_of(frame: FrameType) -> RawSite:
    """Where a frame of user code stands."""
    key = (id(frame.f_code), frame.f_lasti)
    return _sites.get(key) or _sites.setdefault(key, RawSite(frame.f_code, frame.f_lasti))


def forget_sites() -> None:
    """Let go of the code objects; places taken before and after compare as different."""
    _sites.clear()


def positions(raw: RawSite) -> tuple[int, int, int, int] | None:
    """Line, last line, column and last column of the expression that was running; None if Python kept none."""
    found = next(itertools.islice(raw.code.co_positions(), raw.offset // 2, None), None)
    if found is None:
        return None
    line, end_line, column, end_column = found
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, end_line, column, end_column


def line_of(raw: RawSite) -> int:
    """The 1-based line of a raw site."""
    for start, end, line in raw.code.co_lines():
        if start <= raw.offset < end and line is not None:
            return line
    return raw.code.co_firstlineno


def to_site(raw: RawSite | None) -> Site | None:
    """The readable form, with the text of the whole statement."""
    if raw is None:
        return None
    line = line_of(raw)
    filename = raw.code.co_filename
    return Site(filename, line, source.statement_text(filename, line), raw.code.co_name)


def call_text(raw: RawSite | None) -> str:
    """Source of the very expression that was running, such as `torch.zeros(1, batch)`; "" if not at hand."""
    where = positions(raw) if raw is not None else None
    return source.segment(raw.code.co_filename, where) if raw is not None and where is not None else ""


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables that leaves nothing behind.

    Before Python 3.13 reading `f_locals` of a function leaves a snapshot in the frame, which would keep a deleted model
    alive until the function returns. Python fills it anew at each reading, so it can be emptied.
    """
    found = frame.f_locals
    copy = dict(found)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return copy
