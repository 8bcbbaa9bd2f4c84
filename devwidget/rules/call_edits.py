"""Edits of calls and literals that several rules write."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from devwidget.records.syntax import calls_named, name_of_called
from devwidget.rules.edits.draft import Draft
from devwidget.rules.edits.source_file import has_torch

LOW = "float16", "bfloat16"
"""Dtypes of low precision."""


def add_keyword(draft: Draft, statement: ast.stmt, functions: Collection[str], keyword: str, text: str) -> None:
    """Pass an argument to the calls of some functions on a line, except those with `**kwargs`, which may have it."""
    for call in calls_named(draft.code.parts(statement), *functions):
        if None not in [each.arg for each in call.keywords]:
            draft.keyword(call, keyword, text)


def set_device_ids(draft: Draft, statement: ast.stmt, count: object) -> None:
    """`DataParallel(model)` uses the first `count` GPUs."""
    for call in draft.code.calls(statement):
        if name_of_called(call).endswith("DataParallel") and len(call.args) < 2:
            draft.keyword(call, "device_ids", f"list(range({count}))")


def replace_literal(draft: Draft, statement: ast.stmt, value: object, text: str) -> None:
    """Replace the literals of a line that have a value."""
    for node in _literals(draft, draft.code.parts(statement), value, text):
        draft.replace(node, text)


def replace_only_literal(draft: Draft, _: ast.stmt, value: str, text: str) -> None:
    """Replace the one literal of the file with this value, such as the default of an argument."""
    found = _literals(draft, ast.walk(draft.code.tree), value, text)
    if len(found) == 1:
        draft.replace(found[0], text)


def _literals(draft: Draft, nodes: Iterable[ast.AST], value: object, text: str) -> list[ast.Constant]:
    if "torch." in text and not has_torch(draft.code):
        return []
    literals = [node for node in nodes if isinstance(node, ast.Constant)]
    return [node for node in literals if node.value == value]
