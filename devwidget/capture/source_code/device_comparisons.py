"""Comparisons of a device with a string, or with a device without an index, that never or always hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Literal

import torch

from devwidget.capture.source_code.expressions import Scope
from devwidget.capture.source_code.source_files import definition_of, read_file
from devwidget.capture.source_code.statements import site_at
from devwidget.capture.tensors import DEVICE
from devwidget.records.device import KINDS
from devwidget.records.syntax import is_shallow
from devwidget.records.trace import DeviceComparison

_DEVICE = re.compile(rf"(?:cpu|{'|'.join(KINDS)})(?::\d+)?")
_WRITTEN = re.compile(rf"(?P<device>(?:torch\.)?device\()?'(?P<word>{_DEVICE.pattern})'\)?")
_LEFT_ALONE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
               ast.GeneratorExp, ast.BoolOp)  # fmt: skip
"""Nodes with their own variables; and `and` and `or`, which also check something else of the device."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison in the source: `subject` is compared with `word`, which is in `torch.device(...)` or a plain string."""

    node: ast.Compare
    subject: ast.expr
    word: str
    in_device: bool

    def is_mistaken(self, value: torch.device | str) -> bool:
        """Return whether the result is the same for every device."""
        if isinstance(value, str):
            return not self.in_device and value.startswith(f"{self.word}:")
        return not self.in_device or (self.word == value.type and value.index is not None)


class DeviceComparisons:
    """Comparisons in the functions that a recording has seen, with the values of their variables."""

    def __init__(self) -> None:
        self._waiting: dict[CodeType, list[_Comparison]] = {}
        self._found: list[DeviceComparison] = []

    def look_at(self, frame: FrameType) -> None:
        """Check a place of the user's program that runs for the first time."""
        code = frame.f_code
        if code not in self._waiting:
            self._waiting[code] = list(_comparisons_of(code))
        above = [each for each in self._waiting[code] if each.node.lineno <= frame.f_lineno]  # its subject has a value there
        if not above:
            return
        scope = Scope(frame)
        for each in above:
            value = scope.value(each.subject)
            if type(value) in (DEVICE, str):
                self._waiting[code].remove(each)
                if not each.is_mistaken(value):
                    continue
                site = site_at(code.co_filename, each.node.lineno, code.co_name)
                kind: Literal["text", "device"] = "text" if isinstance(value, str) else "device"
                texts, gives = (ast.unparse(each.node), ast.unparse(each.subject)), isinstance(each.node.ops[0], ast.NotEq)
                self._found.append(DeviceComparison(site, *texts, str(value), kind, gives))

    def list_facts(self) -> dict[str, Any]:
        """Return them in order, each once."""
        return {"comparisons": tuple(dict.fromkeys(self._found))}


def _comparisons_of(code: CodeType) -> Iterator[_Comparison]:
    if not any(type(each) is str and _DEVICE.fullmatch(each) for each in code.co_consts):
        return
    file = read_file(code.co_filename)
    scope = file.tree if code.co_name == "<module>" else definition_of(code)
    if scope is None:
        return
    for node in _list_comparisons(scope):
        found = _read(node)
        if found is not None:
            assigned = file.assigned_lines(scope, ast.unparse(found.subject))
            if all(line < node.lineno for line in assigned):  # what it holds later is what was compared
                yield found


def _list_comparisons(scope: ast.AST) -> Iterator[ast.Compare]:
    waiting = [*ast.iter_child_nodes(scope)]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Compare) and is_shallow(node):
            yield node
        elif not isinstance(node, _LEFT_ALONE):
            waiting += ast.iter_child_nodes(node)


def _read(node: ast.Compare) -> _Comparison | None:
    """Read `device == "cuda"`, `"cuda" != x.device`, `x.device == torch.device("cuda")`."""
    if len(node.ops) > 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return None
    for subject, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
        found = _WRITTEN.fullmatch(ast.unparse(other))
        if found is not None and isinstance(subject, ast.Name | ast.Attribute):
            return _Comparison(node, subject, found["word"], bool(found["device"]))
    return None
