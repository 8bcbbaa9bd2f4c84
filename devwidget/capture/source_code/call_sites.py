"""The user's line behind an event: the first frame that is not library code."""

from __future__ import annotations

import dis
import gc
import inspect
import itertools
import linecache
import sys
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FrameType
from typing import Any

from devwidget.capture.object_fields import copy_items, is_a
from devwidget.capture.source_code import statements
from devwidget.capture.source_code.stack import LIBRARY, STEP, USER, frames_at_work, is_library, owners
from devwidget.records.site import LibraryLine, Site


class RawSite:
    """Code object and offset of an instruction: cheap to take, resolved to a `Site` only when somebody reads it.

    There is one object for each place, so that it can be compared and hashed by identity: the hash of a code object is
    computed from all that is in it, each time.

    Args:
        code: of the user's function.
        offset: of the instruction in it.
        library: where the library stands that it has called, the innermost one; None where torch was called.
    """

    __slots__ = ("code", "library", "offset")

    def __init__(self, code: CodeType, offset: int, library: RawSite | None = None) -> None:
        self.code, self.offset, self.library = code, offset, library

    def is_line_of(self, other: RawSite) -> bool:
        """Whether both are one line of the user, whatever it has called."""
        return self.code is other.code and self.offset == other.offset


_READS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF")
CLICK = "<panel>"
"""What the code is called that stands where a cell would, if a click and no line of the user has asked for a step."""
_sites: dict[tuple[int, ...], RawSite] = {}
newcomers: list[Callable[[FrameType], None]] = []
"""Told of each place of a program that is met for the first time."""


def forget_edited_files() -> None:
    """Have files of the user that have changed since they were read, by a fix for one, read again."""
    for filename in list(linecache.cache):
        if not is_library(filename):
            linecache.checkcache(filename)


def callers(frame: FrameType | None, names: Collection[str]) -> Iterator[RawSite]:
    """Where the user's functions of these names, from the innermost on, were called by user code."""
    for called, above in itertools.pairwise(frames_at_work(frame)):
        if called.f_code.co_name not in names:
            return
        yield site_of(above)


def raw_site(frame: FrameType | None) -> RawSite | None:
    """Where the user's code stands above `frame`, and the library between; the library alone if no line of theirs is there."""
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
    """Where a frame of user code stands."""
    # The site that is kept holds the code object, so that its id cannot be given to another meanwhile.
    key = (id(frame.f_code), frame.f_lasti)
    return _sites.get(key) or _first_site(key, frame)


def _first_site(key: tuple[int, ...], frame: FrameType) -> RawSite:
    for look_at in newcomers:
        look_at(frame)
    return _sites.setdefault(key, RawSite(frame.f_code, frame.f_lasti))


_NOWHERE = RawSite(compile("", "", "exec"), 0)
"""The line of the user above a library that none of theirs has called."""


def through(site: RawSite | None, library: FrameType | None) -> RawSite | None:
    """A line of the user, joined with the line at which a library that it has called stands."""
    if library is None:
        return site
    site = site or _NOWHERE
    # Ids again: the sites that are kept hold both code objects.
    key = (id(site.code), site.offset, id(library.f_code), library.f_lasti)
    return _sites.get(key) or _sites.setdefault(key, RawSite(site.code, site.offset, RawSite(library.f_code, library.f_lasti)))


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
    library = _library_line(raw.library) if raw.library is not None else None
    if raw.library is not None and library is not None and raw.code is _NOWHERE.code:
        return Site(library.file, library.line, library.text, raw.library.code.co_name, library)
    line, filename = line_of(raw), raw.code.co_filename
    return Site(filename, line, statements.statement_text(filename, line), raw.code.co_name, library)


def _library_line(raw: RawSite) -> LibraryLine:
    line, filename = line_of(raw), raw.code.co_filename
    return LibraryLine(filename, line, statements.statement_text(filename, line))


def call_text(raw: RawSite | None) -> str:
    """Source of the very expression that was running, such as `torch.zeros(1, batch)`; "" if not at hand."""
    where = positions(raw) if raw is not None else None
    return statements.segment(raw.code.co_filename, where) if raw is not None and where is not None else ""


def names_read(raw: RawSite) -> frozenset[str]:
    """The variables that the very expression that was running read, told by its bytecode where there is no source."""
    where = positions(raw)
    found: set[str] = set()
    for step in dis.get_instructions(raw.code) if where is not None else ():
        if where is not None and step.opname.startswith(_READS) and _is_inside(step.positions, where):
            found.update(step.argval if isinstance(step.argval, tuple) else (step.argval,))  # two at once from 3.13 on
    return frozenset(found)


def _is_inside(part: dis.Positions | None, whole: tuple[int, int, int, int]) -> bool:
    if part is None or part.lineno is None or part.end_lineno is None or part.col_offset is None or part.end_col_offset is None:
        return False
    begins, ends = (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)
    return (whole[0], whole[2]) <= begins and ends <= (whole[1], whole[3])


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables that leaves nothing behind, and changes nothing that the program can see.

    Before Python 3.13 a function has one dict of its variables, the one that `locals()` returns; each reading of `f_locals`
    fills it anew, and it would keep a deleted model alive until the function returns. So it is emptied again, unless
    somebody else holds it; and a function that may hold it since an earlier moment is not read while it runs.
    """
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return _copied(frame.f_locals)
    if not _ASKING.isdisjoint(frame.f_code.co_names) and _asks(frame.f_code):
        return _locals_of_ended(frame)
    found = frame.f_locals
    copy = dict(found)
    if sys.getrefcount(found) <= _OURS_ALONE:
        for name in copy.keys() & _variables(frame.f_code):  # others were put there by `exec`
            del found[name]
    return copy


def _locals_of_ended(frame: Any) -> dict[str, Any]:
    """The variables of a function that has ended, whose own dict is put back; {} for one that still runs.

    Only a frame that has ended tells the garbage collector what it refers to, its code and its dict of variables too.
    """
    held = gc.get_referents(frame if type(frame) is FrameType else frame.frame)
    if not any(each is frame.f_code for each in held):
        return {}
    before = {id(each): dict(each) for each in held if type(each) is dict}
    found = frame.f_locals
    copy = dict(found)
    found.clear()
    found.update(before.get(id(found), {}))
    return copy


_ASKING = frozenset({"locals", "vars", "eval", "exec", "f_locals"})
"""Names by which a function can come to hold the dict of its own variables."""
_OURS_ALONE = 3
"""References to a frame's dict of variables: the frame's, our variable, and the argument of `getrefcount`."""


def _asks(code: CodeType) -> bool:
    """Whether a function names one of these itself; `model.eval()` has an attribute of that name."""
    used = {found.argval for found in dis.get_instructions(code) if found.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME"))}
    return not _ASKING.isdisjoint(used) or "f_locals" in code.co_names


def _variables(code: CodeType) -> frozenset[str]:
    return frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))


def globals_used(frame: FrameType) -> dict[str, Any]:
    """The global variables that a frame's code names."""
    found = {name: dict.get(frame.f_globals, name, _ABSENT) for name in frame.f_code.co_names}
    return {name: value for name, value in found.items() if value is not _ABSENT}


_ABSENT = object()


def _copied(namespace: Any) -> dict[str, Any]:
    """A dict, or Python's own view of a frame; a namespace of another class (`exec` takes any mapping) is not asked."""
    if is_a(namespace, dict):
        return dict(copy_items(namespace))
    return dict(namespace) if type(namespace).__module__ == "builtins" else {}
