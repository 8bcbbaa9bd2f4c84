"""Moves left out: the line of a move without the call that makes it, so that a tensor stays where it was."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS, DeviceId
from devwidget.records.finding import Fix
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in
from devwidget.rules.edits.devices import goes_to
from devwidget.rules.edits.draft import Draft, mended


def without_move(site: Site | None, target: DeviceId, summary: str) -> Fix | None:
    """A line without the call that moves something to a device; of a device that has a name, the only move there."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        leave_out(draft, statement, target)
        moves = [] if draft.changes else [each for each in _moves(draft, statement) if _may_go(*each, target)]
        for node, method in moves if len(moves) == 1 else ():
            draft.unwrap(node, method.value)

    return mended(site, summary, change)


def leave_out(draft: Draft, statement: ast.stmt, target: DeviceId) -> None:
    """Take `.cpu()`, or `.to('cpu')`, off every tensor of a statement."""
    for node, method in _moves(draft, statement):
        if goes_to(node, method, target):
            draft.unwrap(node, method.value)


def _moves(draft: Draft, statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    for call in draft.code.calls(statement):
        if isinstance(call.func, ast.Attribute) and call.func.attr in PLACING_METHODS:
            yield call, call.func


def _may_go(node: ast.Call, method: ast.Attribute, target: DeviceId) -> bool:
    """Whether a call goes to a device that it does not write down: `.cuda()`, `.to(device)`."""
    bare = method.attr == target.kind and method.attr != "cpu"
    return bare or (method.attr == "to" and not any(isinstance(each, ast.Constant) for each in arguments_in(node)))
