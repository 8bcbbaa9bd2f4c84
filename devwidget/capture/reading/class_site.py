"""Where a class of the user is written, also if it was typed into a notebook cell."""

from __future__ import annotations

import linecache
import re
import types
import weakref
from collections.abc import Iterator

from devwidget.capture.call_site import is_library
from devwidget.records.site import Site

_known: weakref.WeakKeyDictionary[type, Site | None] = weakref.WeakKeyDictionary()


def class_site(kind: type) -> Site | None:
    """The line of the `class` statement; None for library classes and where no method tells the file."""
    if kind not in _known:
        _known[kind] = _find(kind)
    return _known[kind]


def _find(kind: type) -> Site | None:
    codes = sorted(_method_codes(kind), key=lambda code: code.co_firstlineno)
    if not codes or is_library(codes[0].co_filename):
        return None
    filename, line = codes[0].co_filename, codes[0].co_firstlineno
    line = _class_line(filename, kind.__name__, line)
    outside = kind.__qualname__.removesuffix(kind.__name__).removesuffix(".").removesuffix(".<locals>")
    return Site(filename, line, linecache.getline(filename, line).strip(), outside.rpartition(".")[2] or "<module>")


def _method_codes(kind: type) -> Iterator[types.CodeType]:
    """Code of the functions written in the body of the class; `inspect.getsource` cannot see a notebook's classes."""
    for value in vars(kind).values():
        function = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
        if isinstance(value, property):
            function = value.fget
        if isinstance(function, types.FunctionType) and function.__qualname__.startswith(f"{kind.__qualname__}."):
            yield function.__code__


def _class_line(filename: str, name: str, below: int) -> int:
    """The `class` line above a method, or the method's own line if the source is not at hand."""
    header = re.compile(rf"\s*class\s+{re.escape(name)}\b")
    lines = linecache.getlines(filename)[:below]
    return next((at for at in range(len(lines), 0, -1) if header.match(lines[at - 1])), below)
