"""Top level: the statements of a file, or of all cells of a notebook, as one function that has run up to a line."""

from __future__ import annotations

import ast
import linecache
from types import FrameType
from typing import Any

import torch

from devwidget.capture.object_fields import is_a, is_scalar
from devwidget.capture.source_code.call_sites import CLICK
from devwidget.capture.source_code.definitions import statements_of
from devwidget.capture.source_code.expressions import UNKNOWN
from devwidget.capture.source_code.past.past_calls import PastCall
from devwidget.capture.source_code.statements import site_at
from devwidget.records.site import Site, cell_label, cells
from devwidget.records.syntax import parsed, targets_of

_LINES = 1_000_000
"""Lines that are set aside for each cell, so that those of all cells can be told apart."""


class TopLevel(PastCall):
    """The variables of a notebook or a file, without those that hold what it has made.

    Args:
        frame: of the cell that runs, or of the file.
        files: names of the cells, in the order in which they ran, the running one last; or of the file.
    """

    def __init__(self, frame: FrameType, files: list[str]) -> None:
        self._files = files
        body: list[ast.stmt] = []
        for number, file in enumerate(files):
            tree = parsed("".join(linecache.getlines(file)), deep=True)
            for node in tree.body if tree is not None else ():
                body.append(ast.increment_lineno(node, number * _LINES))
        empty = ast.arguments([], [], None, [], [], None, [])
        function = ast.FunctionDef("<module>", empty, body, [])
        function.lineno, function.end_lineno = 0, len(files) * _LINES
        self.describe(frame.f_code, function, None)
        made = {part.id for each in statements_of(function) for part in targets_of(each) if isinstance(part, ast.Name)}
        self._locals: dict[str, Any] = {}
        self._globals = {
            name: UNKNOWN if name in made and not _is_plain(value) else value for name, value in frame.f_globals.items()
        }

    def _variable_was(self, node: ast.Name, line: int) -> Any:
        now = self.value(node)
        return now if is_scalar(now) and self.is_still(node.id, line) else super()._variable_was(node, line)

    def site(self, node: ast.stmt) -> Site:
        """Where one of its statements is, for the search: lines of earlier cells are counted."""
        return Site(self._files[node.lineno // _LINES], node.lineno, "", "<module>")

    def site_of_line(self, file: str, line: int) -> Site:
        """The same of a line of a file."""
        return Site(file, self._files.index(file) * _LINES + line, "", "<module>")

    def shown(self, site: Site) -> Site:
        """The place as the user knows it."""
        return site_at(site.file, site.line % _LINES, "<module>")


def top_level(frame: FrameType) -> TopLevel | None:
    """What has run at the top level when a frame of it runs."""
    file = frame.f_code.co_filename
    others = [each for each in cells() if each != file] if cell_label(file) or file == CLICK else []
    return TopLevel(frame, [*others, file])


def _is_plain(value: object) -> bool:
    """Numbers, texts, devices and classes: what is what the cell says whenever it is read."""
    return is_scalar(value) or is_a(value, (torch.device, torch.dtype, type))
