"""Where a class of the user is written, also if it was typed into a notebook cell."""

from __future__ import annotations

import linecache
import re
import types
from collections.abc import Iterator

from devwidget.capture.object_fields import class_name, names_of, qualified_name
from devwidget.capture.source_code.call_sites import is_library
from devwidget.records.site import Site


def class_site(kind: type) -> Site | None:
    """The line of the `class` statement; None for library classes and where no method tells the file."""
    codes = sorted(_method_codes(kind), key=lambda code: code.co_firstlineno)
    if not codes or is_library(codes[0].co_filename):
        return None
    filename, line = codes[0].co_filename, codes[0].co_firstlineno
    line = _class_line(filename, class_name(kind), line)
    outside = qualified_name(kind).removesuffix(class_name(kind)).removesuffix(".").removesuffix(".<locals>")
    return Site(filename, line, linecache.getline(filename, line).strip(), outside.rpartition(".")[2] or "<module>")


def _method_codes(kind: type) -> Iterator[types.CodeType]:
    """Code of the functions written in the body of the class; `inspect.getsource` cannot see a notebook's classes."""
    for value in list(names_of(kind).values()):
        function = value.__func__ if type(value) is staticmethod or type(value) is classmethod else value
        if type(value) is property:
            function = value.fget
        if type(function) is types.FunctionType and function.__qualname__.startswith(f"{qualified_name(kind)}."):
            yield function.__code__


def _class_line(filename: str, name: str, below: int) -> int:
    """The `class` line above a method, or the method's own line if the source is not at hand."""
    header = re.compile(rf"\s*class\s+{re.escape(name)}\b")
    lines = linecache.getlines(filename)[:below]
    return next((at for at in range(len(lines), 0, -1) if header.match(lines[at - 1])), below)
