"""Where something happened: a line of source code, and the part of a training step."""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

Phase = Literal["build", "forward", "loss", "backward", "optimizer", "other"]
PHASES: tuple[Phase, ...] = get_args(Phase)


_NAMES = re.compile(r"<ipython-input-(\d+)-|(?:.*[/\\])?ipykernel_\d+[/\\]")
"""IPython's names for cells, in a terminal and in a kernel. A debugger may have written files with these names."""
_MARIMO = re.compile(r"(?:.*[/\\])?__marimo__cell_(.+?)_\w*\.py")
_marimo_numbers: dict[str, int] = {}
"""Numbers of marimo cells by their file name, in notebook order when first read."""


@dataclass(frozen=True, slots=True)
class LibraryLine:
    """A line of an installed package; see `Site`."""

    file: str
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in source code.

    Attributes:
        file: path, or the name that Python gave a notebook cell.
        line: 1-based.
        text: the whole statement around that line, dedented; "" without source.
        function: name of the function or class body around the line; `<module>` at top level.
        library: line of the innermost library other than torch that this user line called; None if there is none. The same line
            for a library that no user line called.
    """

    file: str
    line: int
    text: str = ""
    function: str = ""
    library: LibraryLine | None = None

    @property
    def is_users(self) -> bool:
        """Return whether it is a line of the user, not of a library that no user line called."""
        return self.library is None or (self.file, self.line) != (self.library.file, self.library.line)

    @property
    def place(self) -> tuple[object, ...]:
        """Return the line of the user and of the library."""
        return self.file, self.line, self.library and (self.library.file, self.library.line)

    @property
    def line_id(self) -> str:
        """Return the user's line, to compare findings."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        own = f"{file_label(self.file)}:{self.line}"
        called = self.library if self.is_users else None
        if called is None:
            return own
        return f"{own} ({file_label(called.file)}:{called.line})"


def file_label(file: str) -> str:
    """Return the file's name; the number of the cell for an IPython cell."""
    return cell_label(file) or file.replace("\\", "/").rsplit("/", 1)[-1]


def find_shell() -> Any:
    """Return the IPython shell of this process; None outside of IPython."""
    find: Callable[[], Any] = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return find()


def is_in_jupyter() -> bool:
    """Return whether the page is not that of VS Code or Colab, which show both outputs of a panel and keep their cells."""
    return "VSCODE_PID" not in os.environ and "google.colab" not in sys.modules


def runs_in_notebook() -> bool:
    """Return whether a page, not a terminal, shows the output."""
    shell = find_shell()
    return hasattr(shell, "kernel")


def has_page() -> bool:
    """Return whether a page shows the output, and this installation has widgets for it."""
    return runs_in_notebook() and importlib.util.find_spec("anywidget") is not None


def cell_label(file: str) -> str:
    """Return `In[5]` for a notebook cell, `cell[5]` in marimo, `cell` for one of another session, "" for a file."""
    shell = find_shell()
    if shell is not None:
        label = shell.compile.format_code_name(file)
    else:
        label = None
    if label and label[0] == "Cell":
        return str(label[1])
    if marimo := _MARIMO.fullmatch(file):
        return _marimo_label(marimo[1])
    found = _NAMES.match(file)
    if found is None:
        return ""
    if found[1]:
        return f"In[{found[1]}]"
    return "cell"


def _marimo_label(name: str) -> str:
    context = getattr(sys.modules.get("marimo._runtime.context"), "safe_get_context", lambda: None)()
    if context is not None:  # it knows one thread alone
        for each in context.graph.cells:
            _marimo_numbers.setdefault(str(each), len(_marimo_numbers) + 1)
    if name in _marimo_numbers:
        return f"cell[{_marimo_numbers[name]}]"
    return "cell"


def cells() -> list[str]:
    """Return the names of the cells whose source is known, in the order of their first run."""
    return [file for file in list(linecache.cache) if cell_label(file)]
