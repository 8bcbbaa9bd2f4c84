"""Where an event of the profiler was: the user's line, the running module, the part of the step."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.modules import named_tensors, walk_modules
from devwidget.capture.object_fields import class_name
from devwidget.capture.source_code.call_sites import INSTALLED, USERS, owners
from devwidget.capture.source_code.statements import statement_text
from devwidget.records.site import LibraryLine, Phase, Site


class EventPlace(NamedTuple):
    """What stands around an event.

    Attributes:
        module: path of the innermost registered module; None outside of the model.
        phase: the part of the step, where the calls around tell it; None where what was before decides.
        site: the user's line; None for what an operator of Python runs (`a + b`), of which only the function is known.
        library: where the innermost library stands that this line has called.
        calls: how many modules are running.
        call: the event of the call at that line, or at that of the library.
        is_in_torch: a function of torch or of Python itself runs, whose calls move no line.
    """

    module: str | None = None
    phase: Phase | None = None
    site: Site | None = None
    library: LibraryLine | None = None
    calls: int = 0
    call: Any = None
    is_in_torch: bool = False


OUTSIDE = EventPlace()
Function = tuple[str, str]
"""File and name."""


def site_of(place: EventPlace) -> Site | None:
    """The user's line, through that of the library; the library's own where no line of the user's is known."""
    site, library = place.site, place.library
    if library is None:
        return site
    if site is None:
        return Site(library.file, library.line, library.text, "", library)
    return Site(site.file, site.line, site.text, site.function, library)


class Files:
    """Files by the names that the profiler gives them: without the folders of `sys.path`."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._modules: set[str] = set()
        self._count = 0

    def find_path(self, name: str) -> str:
        """The path of a file; the name itself for what was no file, such as the cell of a notebook."""
        if name not in self._known and len(sys.modules) != self._count:
            self._add_modules()
        return self._known.get(name, name)

    def _add_modules(self) -> None:
        """Add what was imported since."""
        new = {name: module for name, module in list(sys.modules.items()) if name not in self._modules}
        folders = [re.escape(folder.rstrip("/") + "/") for folder in sys.path if folder]
        prefix = re.compile("|".join(sorted(folders, key=len, reverse=True)) or "(?!)")
        for module in new.values():
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                self._known.setdefault(prefix.sub("", file, count=1), file)
        self._modules.update(new)
        self._count = len(sys.modules)


_files = Files()
"""Kept: thousands of modules are imported once."""


class SiteReader:
    """Frames of the profiler as sites, each built once."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, int]] = {}

    def owner_of(self, name: str) -> tuple[str, int]:
        """Path and owner of a file."""
        found = self._owners.get(name)
        if found is None:
            path = _files.find_path(name)
            found = self._owners[name] = path, owners[path]
        return found

    def enter_call(self, event: Any, frame: Any, place: EventPlace, *, is_torchs: bool = False) -> EventPlace:
        """The place of what a call runs, of torch's or not, that was made in `frame`: the user's line, that of the library."""
        module, phase, site, library, calls, call, _ = place
        try:
            path, owner = self.owner_of(frame.file_name)
            function = frame.function_name if owner == USERS else ""
        except UnicodeDecodeError:  # torch points into the names of code, which has died meanwhile
            return EventPlace(module, phase, None, None, calls, None, is_torchs)
        if owner == USERS:
            site, library, call = _user_site(path, frame.line_number, function), None, event
        elif owner == INSTALLED:
            library, call = _library_line(path, frame.line_number), event
        return EventPlace(module, phase, site, library, calls, call, is_torchs)

    def is_users(self, name: str) -> bool:
        """Whether a file is the user's."""
        return self.owner_of(name)[1] == USERS

    def is_library(self, name: str) -> bool:
        """Whether a file belongs to a library other than torch."""
        return self.owner_of(name)[1] == INSTALLED

    def find_function(self, event: Any) -> Function | None:
        """The user's function in which an event is."""
        while (event := event.parent) is not None:
            if type(event.extra_fields) is torch_internals.CallFields:
                with contextlib.suppress(UnicodeDecodeError):
                    code = event.extra_fields.callsite
                    if self.is_users(code.file_name):
                        return self.owner_of(code.file_name)[0], code.function_name
        return None


@functools.lru_cache(10_000)
def _user_site(path: str, line: int, function: str) -> Site | None:
    """A line of the user; None where no such line can be read: the name may be what stands where that of dead code was."""
    text = statement_text(path, line)
    return Site(path, line, text, function) if text else None


@functools.lru_cache(10_000)
def _library_line(path: str, line: int) -> LibraryLine:
    return LibraryLine(path, line, statement_text(path, line))


class ModulePaths:
    """Paths of modules by address: the profiler names no others.

    Args:
        root: the model, if somebody said.
        named: modules that the program has a name for. The outermost one that ran is the root if it is one of them, and what
            nobody has a name for has no path.
    """

    def __init__(self, root: nn.Module | None, named: Iterable[nn.Module]) -> None:
        self._paths: dict[int, str] = {}
        self._named = {} if root is not None else {id(each): each for each in named}
        if root is not None:
            self._add(root, "")

    def find_path(self, address: int, *, is_outermost: bool) -> str | None:
        """The path of a module, None for one that belongs to no root."""
        if address not in self._paths and is_outermost:
            module = self._named.get(address)
            if module is not None and not self._paths:
                self._add(module, "")
            elif module is not None and _has_parameters(module):
                self._add(module, class_name(type(module)))
        return self._paths.get(address)

    def has_path(self, address: int) -> bool:
        """Whether a module belongs to a root."""
        return address in self._paths

    def _add(self, root: nn.Module, prefix: str) -> None:
        for path, module in walk_modules(root):
            self._paths.setdefault(id(module), f"{prefix}.{path}".strip(".") if prefix else path)


def _has_parameters(module: nn.Module) -> bool:
    return any(next(named_tensors(part, "_parameters"), None) is not None for _, part in walk_modules(module))
