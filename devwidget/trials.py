"""Trials: the edited code itself is put in place, and the step is run once more, without healing."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import gc
import io
import linecache
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.tensors import tensors_in
from devwidget.records.finding import Edit, Finding, Fix
from devwidget.records.trace import Trace

Again = Callable[[], tuple[Trace, Any]]
"""Runs the step without healing: what was recorded, and the output of the model."""

MOST_TRIALS = 6
"""Steps that one trace may run to try its fixes."""


def tried(trace: Trace, output: Any, again: Again) -> Trace:
    """The trace with fixes verified by a run, and without those that a run has shown to be wrong.

    With one finding each of its edits is tried until one works. With several their first edits are tried together.
    """
    found = [f for f in trace.findings if f.severity != "info"]
    if not found or any(not f.fixes or not f.fixes[0].edits for f in found):
        return trace
    candidates = [[fix] for fix in found[0].fixes if fix.edits] if len(found) == 1 else [[f.fixes[0] for f in found]]
    failed: list[Fix] = []
    for fixes in candidates[:MOST_TRIALS]:
        works = _works(fixes, output, again)
        if works:
            return _with_verified(trace, fixes, failed)
        failed += fixes if works is False else []
    return _with_verified(trace, [], failed if len(found) == 1 else [])


def _with_verified(trace: Trace, good: list[Fix], failed: list[Fix]) -> Trace:
    def better(finding: Finding) -> Finding:
        fixes = [dataclasses.replace(fix, verified=True) if fix in good else fix for fix in finding.fixes if fix not in failed]
        return dataclasses.replace(finding, fixes=tuple(fixes) or finding.fixes)

    return dataclasses.replace(trace, findings=tuple(map(better, trace.findings)))


def _works(fixes: list[Fix], output: Any, again: Again) -> bool | None:
    """Whether the step runs clean with some edits, with the same output; None where they cannot be put in place."""
    edits = tuple(edit for fix in fixes for edit in fix.edits)
    changed = {file: _changed(file, [e for e in edits if e.file == file]) for file in {e.file for e in edits}}
    if any(functions is None for functions in changed.values()):
        return None
    with uninterrupted(), _in_place([pair for functions in changed.values() for pair in functions or ()]), _silence():
        trace, result = again()
    clean = not trace.error and not any(finding.severity != "info" for finding in trace.findings)
    return clean and _equal(output, result)


def _changed(file: str, edits: list[Edit]) -> list[tuple[FunctionType, CodeType]] | None:
    """The live functions that the edits of a file change, each with its new code; None if they change more than those."""
    rows = [row.rstrip("\n") for row in linecache.getlines(file)]
    live = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == file]
    try:
        new = {code.co_qualname: code for code in _codes(compile(_applied(rows, edits), file, "exec", dont_inherit=True))}
        spans = _spans(ast.parse("\n".join(rows)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    names = {name for edit in edits for name in [_around(spans, edit)]}
    if "" in names or not names <= new.keys() or any(name.endswith("__init__") for name in names):
        return None  # a line that has run already: what it made would have to be made again
    pairs = [(f, new[f.__code__.co_qualname]) for f in live if f.__code__.co_qualname in names]
    fit = all(f.__code__.co_freevars == code.co_freevars for f, code in pairs)
    return pairs if fit and {f.__code__.co_qualname for f, _ in pairs} == names else None


def _applied(rows: list[str], edits: Iterable[Edit]) -> str:
    lines = list(rows)
    for edit in sorted(set(edits), key=lambda e: (e.first, e.last), reverse=True):
        lines[edit.first - 1 : edit.last] = edit.text.split("\n") if edit.text else []
    return "\n".join(lines)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _spans(tree: ast.Module) -> list[tuple[int, int, str]]:
    """First and last line of each function, with its qualified name, outer ones first."""
    found: list[tuple[int, int, str]] = []

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((child.body[0].lineno, child.end_lineno or child.lineno, prefix + child.name))
                walk(child, f"{prefix}{child.name}.<locals>.")
            else:
                walk(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    walk(tree, "")
    return found


def _around(spans: list[tuple[int, int, str]], edit: Edit) -> str:
    """The innermost function that an edit stays inside; "" for a line outside of all."""
    inside = [name for first, last, name in spans if first <= edit.first and max(edit.first, edit.last) <= last]
    return inside[-1] if inside else ""


@contextlib.contextmanager
def _in_place(pairs: list[tuple[FunctionType, CodeType]]) -> Iterator[None]:
    before = [(function, function.__code__) for function, _ in pairs]
    try:
        for function, code in pairs:
            function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What the step prints has been printed once."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _equal(one: Any, other: Any) -> bool:
    """Whether two outputs hold equal tensors."""
    first, second = list(tensors_in(one)), list(tensors_in(other))
    return len(first) == len(second) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and a.device == b.device
        and (torch.equal(a, b) or (a.is_floating_point() and torch.allclose(a, b, equal_nan=True)))
        for a, b in zip(first, second, strict=True)
    )
