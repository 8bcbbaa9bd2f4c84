"""The user's line behind an event: the first frame outside of library code."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Collection, Iterator
from types import CodeType, FrameType

from devwidget.capture.source_code import statements
from devwidget.capture.source_code.stack import (
    LIBRARY,
    STEP,
    USER,
    frames_at_work,
    is_library,
    is_users_code,
    owners,
    steps_down,
)
from devwidget.records.site import LibraryLine, Site


class RawSite:
    """Code object and offset of an instruction: cheap to take, resolved to a `Site` on request.

    There is one object per place, so that it can be compared and hashed by identity. The hash of a code object is computed
    from all its content each time.

    Args:
        code: code of the user's function.
        offset: offset of the instruction in it.
        library: place of the innermost library that it called; None if it called torch.
    """

    __slots__ = ("code", "library", "offset")

    def __init__(self, code: CodeType, offset: int, library: RawSite | None = None) -> None:
        self.code, self.offset, self.library = code, offset, library

    def is_line_of(self, other: RawSite) -> bool:
        """Return whether both are one line of the user, whatever it called."""
        return self.code is other.code and self.offset == other.offset


CLICK = "<panel>"
"""File name of the code in place of a cell, if a click and not a line of the user requested a step."""
_sites: dict[tuple[int, ...], RawSite] = {}


def forget_edited_files() -> None:
    """Read user files again that have changed since they were read, for example by a fix."""
    for filename in list(linecache.cache):
        if not is_library(filename):
            linecache.checkcache(filename)


def callers(frame: FrameType | None, names: Collection[str]) -> Iterator[RawSite]:
    """Yield where user code called the user's functions of these names, from the innermost on."""
    for called, above in itertools.pairwise(frames_at_work(frame)):
        if called.f_code.co_name not in names:
            return
        yield site_of(above)


def raw_site(frame: FrameType | None) -> RawSite | None:
    """Return the place of the user's code above `frame`, and the library between; the library alone without a user line."""
    library = None
    while frame is not None:  # a generator would take twice as long, for each call of torch
        owner = owners[frame.f_code.co_filename]
        if owner is USER:
            return through(site_of(frame), library)
        if owner is STEP:
            break
        if owner is LIBRARY and library is None:
            library = frame
        frame = frame.f_back
    return through(None, library)


def site_of(frame: FrameType) -> RawSite:
    """Return the place of a frame of user code."""
    # The site that is kept holds the code object, so that its id cannot be given to another meanwhile.
    key = (id(frame.f_code), frame.f_lasti)
    return _sites.get(key) or _sites.setdefault(key, RawSite(frame.f_code, frame.f_lasti))


_NOWHERE = RawSite(compile("", "", "exec"), 0)
"""The user's line above a library that no user line called."""


def through(site: RawSite | None, library: FrameType | None) -> RawSite | None:
    """Return a user line combined with the line of a library that it called."""
    if library is None:
        return site
    site = site or _NOWHERE
    # Ids again: the sites that are kept hold both code objects.
    key = (id(site.code), site.offset, id(library.f_code), library.f_lasti)
    return _sites.get(key) or _sites.setdefault(key, RawSite(site.code, site.offset, RawSite(library.f_code, library.f_lasti)))


def forget_sites() -> None:
    """Release the code objects. Places taken before and after compare as different."""
    _sites.clear()


def line_of(raw: RawSite) -> int:
    """Return the 1-based line of a raw site."""
    for start, end, line in raw.code.co_lines():
        if start <= raw.offset < end and line is not None:
            return line
    return raw.code.co_firstlineno


def to_site(raw: RawSite | None) -> Site | None:
    """Return the readable form, with the text of the whole statement."""
    if raw is None:
        return None
    library = None
    if raw.library is not None:
        line, filename = line_of(raw.library), raw.library.code.co_filename
        library = LibraryLine(filename, line, statements.statement_text(filename, line))
        if raw.code is _NOWHERE.code:
            return Site(filename, line, library.text, raw.library.code.co_name, library)
    line, filename = line_of(raw), raw.code.co_filename
    return Site(filename, line, statements.statement_text(filename, line), raw.code.co_name, library)


def innermost_site(error: BaseException) -> Site | None:
    """Return the user's line nearest to where an exception was raised."""
    site = None
    for step in steps_down(error.__traceback__):
        if is_users_code(step.tb_frame.f_code):
            site = RawSite(step.tb_frame.f_code, step.tb_lasti)
    return to_site(site)


def call_text(raw: RawSite | None) -> str:
    """Return the source of the expression that was running, such as `torch.zeros(1, batch)`; "" if not available."""
    if raw is None:
        return ""
    where = next(itertools.islice(raw.code.co_positions(), raw.offset // 2, None), (None,))
    match where:
        case int(first), int(last), int(start), int(end):
            return statements.segment(raw.code.co_filename, (first, last, start, end))
    return ""  # Python kept no position
