"""Comparisons of a device with a text, or with a device without its number, that mean something else than they say."""

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
_WITH_VARIABLES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
                   ast.GeneratorExp)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One in the source: `subject` is compared with `word`, which stands in `torch.device(...)` or alone."""

    line: int
    text: str
    subject: ast.expr
    word: str
    in_device: bool
    gives: bool


class DeviceComparisons:
    """Those of the functions that a recording has seen, with what their variables held."""

    def __init__(self) -> None:
        self._waiting: dict[CodeType, list[_Comparison]] = {}
        self._found: list[DeviceComparison] = []

    def look_at(self, frame: FrameType) -> None:
        """A place of the user's program runs for the first time."""
        code = frame.f_code
        waiting = self._waiting.get(code)
        if waiting is None:
            waiting = self._waiting[code] = list(_comparisons_of(code)) if _names_device(code) else []
        above = [each for each in waiting if each.line <= frame.f_lineno]  # what gives it a value stands above it
        if not above:
            return
        scope = Scope(frame)
        for each in above:
            value = scope.value(each.subject)
            if type(value) in (DEVICE, str):
                waiting.remove(each)
                self._judge(each, value, code)

    def _judge(self, each: _Comparison, value: torch.device | str, code: CodeType) -> None:
        if _is_mistaken(each, value):
            site, subject = site_at(code.co_filename, each.line, code.co_name), ast.unparse(each.subject)
            kept: Literal["text", "device"] = "text" if isinstance(value, str) else "device"
            self._found.append(DeviceComparison(site, each.text, subject, str(value), kept, each.gives))

    def list_facts(self) -> dict[str, Any]:
        """In the order in which they were met, each once."""
        return {"comparisons": tuple(dict.fromkeys(self._found))}


def _names_device(code: CodeType) -> bool:
    """Whether a text that is a device is among the constants of a function."""
    return any(type(each) is str and _DEVICE.fullmatch(each) for each in code.co_consts)


def _is_mistaken(each: _Comparison, value: torch.device | str) -> bool:
    """Whether the comparison gives the same for every device that it was written for."""
    if isinstance(value, str):
        return not each.in_device and value.startswith(f"{each.word}:")
    return not each.in_device or (each.word == value.type and value.index is not None)


def _comparisons_of(code: CodeType) -> Iterator[_Comparison]:
    file = read_file(code.co_filename)
    scope = file.tree if file is not None and code.co_name == "<module>" else definition_of(code)
    if file is None or scope is None:
        return
    nodes = list(_list_nodes(scope))
    words = list(_asked_in(nodes))
    for node in nodes:
        found = _read(node) if isinstance(node, ast.Compare) and is_shallow(node) else None
        if found is None or _is_asked(found.subject, words):
            continue
        assigned = file.assigned_lines(scope, ast.unparse(found.subject))
        if all(line < found.line for line in assigned):  # what it holds later is what was compared
            yield found


def _list_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or a file, in order, without those that have variables of their own."""
    waiting = [*ast.iter_child_nodes(scope)][::-1]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _WITH_VARIABLES):
            yield node
            waiting += [*ast.iter_child_nodes(node)][::-1]


def _read(node: ast.Compare) -> _Comparison | None:
    """`device == "cuda"`, `"cuda" != x.device`, `x.device == torch.device("cuda")`."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return None
    left, right = node.left, node.comparators[0]
    gives = isinstance(node.ops[0], ast.NotEq)
    for subject, other in ((left, right), (right, left)):
        if not isinstance(subject, ast.Name | ast.Attribute | ast.Subscript):
            continue
        match other:
            case ast.Constant(value=str(word)) if _DEVICE.fullmatch(word):
                return _Comparison(node.lineno, ast.unparse(node), subject, word, False, gives)
            case ast.Call(func=ast.Attribute(attr="device"), args=[ast.Constant(value=str(word))]) if _DEVICE.fullmatch(word):
                return _Comparison(node.lineno, ast.unparse(node), subject, word, True, gives)
    return None


def _asked_in(nodes: list[ast.AST]) -> Iterator[str]:
    """The calls and attributes in conditions."""
    for node in nodes:
        match node:
            case ast.If(test=asked) | ast.IfExp(test=asked) | ast.While(test=asked) | ast.Assert(test=asked):
                parts = ast.walk(asked)
            case ast.BoolOp():
                parts = ast.walk(node)
            case _:
                continue
        for part in parts:
            if isinstance(part, ast.Call | ast.Attribute) and is_shallow(part):
                yield ast.unparse(part)


def _is_asked(subject: ast.expr, words: list[str]) -> bool:
    """Whether a condition of the function asks what kind of value it is about."""
    text = ast.unparse(subject)
    kinds = (f"isinstance({text}", f"type({text}", f"str({text}", f"{text}.type", f"{text}.startswith")
    return any(word.startswith(kinds) for word in words)
