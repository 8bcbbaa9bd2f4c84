"""Comparisons of a device with a text, or with a device without its number, that mean something else than they say."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from devwidget.capture.source_code.call_sites import locals_of
from devwidget.capture.source_code.statements import site_at
from devwidget.capture.source_code.value_paths import path_of, selected
from devwidget.capture.tensors import DEVICE, is_tensor
from devwidget.records.device import KINDS
from devwidget.records.syntax import parsed
from devwidget.records.trace import DeviceComparison

_DEVICE = re.compile(rf"(?:cpu|{'|'.join(KINDS)})(?::\d+)?")
_OPERATORS = {ast.Eq: False, ast.NotEq: True, ast.In: False, ast.NotIn: True}
"""What each gives where nothing is equal."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_INNER = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One in the source: `subject` is compared with `words`, which stand in `torch.device(...)` or alone."""

    line: int
    text: str
    subject: str
    words: tuple[str, ...]
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
        if not waiting:
            return
        variables = locals_of(frame)
        for each in [each for each in waiting if frame.f_lineno >= each.line]:  # what gives it a value stands above it
            root, keys = path_of(each.subject)
            value = _value_at(variables.get(root, frame.f_globals.get(root)), keys)
            if value is not None:
                waiting.remove(each)
                self._judge(each, value, code)

    def _judge(self, each: _Comparison, value: torch.device | str, code: CodeType) -> None:
        if _is_mistaken(each, value):
            site, kept = site_at(code.co_filename, each.line, code.co_name), isinstance(value, str)
            self._found.append(
                DeviceComparison(site, each.text, each.subject, str(value), "text" if kept else "device", each.gives)
            )

    def list_records(self) -> tuple[DeviceComparison, ...]:
        """In the order in which they were met, each once."""
        return tuple(dict.fromkeys(self._found))


def _names_device(code: CodeType) -> bool:
    """Whether a text that is a device is among the constants of a function."""
    parts = [part for each in code.co_consts for part in (each if type(each) in (tuple, frozenset) else (each,))]
    return any(type(part) is str and _DEVICE.fullmatch(part) for part in parts)


def _value_at(root: Any, keys: tuple[Any, ...]) -> torch.device | str | None:
    """The device or text that a path leads to; no code of the user's runs for it."""
    if keys and keys[-1] == "device":
        owner = selected(root, keys[:-1])
        if is_tensor(owner):
            return owner.device
    value = selected(root, keys)
    return value if type(value) in (DEVICE, str) else None


def _is_mistaken(each: _Comparison, value: torch.device | str) -> bool:
    """Whether the comparison gives the same for every device that it was written for."""
    if not isinstance(value, str):
        alone = all(word == value.type for word in each.words)
        return (alone and value.index is not None) if each.in_device else True
    return not each.in_device and any(str(value).startswith(f"{word}:") for word in each.words) and value not in each.words


def _comparisons_of(code: CodeType) -> Iterator[_Comparison]:
    tree = _tree_of("".join(linecache.getlines(code.co_filename)))
    scope = _scope_of(code, tree) if tree is not None else None
    if tree is None or scope is None:
        return
    for node, around in _walk(scope):
        found = _read(node) if isinstance(node, ast.Compare) else None
        if found is not None and not _is_asked(found.subject, around) and _is_settled(found, scope, tree):
            yield found


@functools.lru_cache(maxsize=4)  # each keeps a syntax tree
def _tree_of(text: str) -> ast.Module | None:
    return parsed(text)


def _scope_of(code: CodeType, tree: ast.Module) -> ast.AST | None:
    """The function that was compiled to this code, or the whole file."""
    if code.co_name == "<module>":
        return tree
    named = (each for each in ast.walk(tree) if isinstance(each, _Function) and each.name == code.co_name)
    return next(
        (each for each in named if code.co_firstlineno in (each.lineno, *(d.lineno for d in each.decorator_list))), None
    )


def _walk(node: ast.AST, around: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """The nodes of a scope without those of inner ones, each with what stands around it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _INNER):
            yield child, around
            yield from _walk(child, (*around, child))


def _read(node: ast.Compare) -> _Comparison | None:
    """`device == "cuda"`, `"cuda" != x.device`, `device in ("cuda", "mps")`, `x.device == torch.device("cuda")`."""
    gives = _OPERATORS.get(type(node.ops[0]))
    if len(node.ops) != 1 or gives is None:
        return None
    for subject, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
        in_device = isinstance(other, ast.Call) and ast.unparse(other.func) == "torch.device" and len(other.args) == 1
        words = _words(other.args[0] if isinstance(other, ast.Call) and in_device else other)
        if words and path_of(ast.unparse(subject))[0]:
            return _Comparison(node.lineno, ast.unparse(node), ast.unparse(subject), words, in_device, gives)
    return None


def _words(node: ast.expr) -> tuple[str, ...]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    words = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return tuple(words) if len(words) == len(parts) and all(map(_DEVICE.fullmatch, words)) else ()


def _is_asked(subject: str, around: tuple[ast.AST, ...]) -> bool:
    """Whether a condition around a comparison asks what kind of value it is about."""
    tests = [ast.unparse(each.test) for each in around if isinstance(each, ast.If | ast.IfExp | ast.While | ast.Assert)]
    tests += [ast.unparse(each) for each in around if isinstance(each, ast.BoolOp)]
    kinds = ("isinstance(", "type(", f"str({subject}", f"{subject}.type", f"{subject}.startswith")
    return any(word in test for test in tests for word in kinds)


def _is_settled(found: _Comparison, scope: ast.AST, tree: ast.Module) -> bool:
    """Whether its subject has got its last value where it stands: in its function above it, or once in the file."""
    lines = _lines_that_bind(found.subject, scope)
    if scope is tree or lines:
        return all(line < found.line for line in lines)
    return len(_lines_that_bind(found.subject, tree)) <= 1


def _lines_that_bind(subject: str, scope: ast.AST) -> list[int]:
    """Lines that give a value to a variable, or to an attribute and what it is an attribute of."""
    names = {subject.rsplit(".", cut)[0] for cut in range(subject.count(".") + 1)}
    nodes = [node for node, _ in _walk(scope)]
    stored = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)]
    lines = [node.lineno for node in stored if ast.unparse(node) in names]
    lines += [node.lineno for node in nodes if isinstance(node, ast.arg) and node.arg in names]
    return lines
