"""Moves left out: the line of a move without the call that makes it, so that a tensor stays where it was."""

from __future__ import annotations

import ast

from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, calls_named
from devwidget.rules.edits.devices import goes_to
from devwidget.rules.edits.draft import Draft, mended


def without_move(site: Site | None, target: DeviceId, summary: str) -> Fix | None:
    """A line without the call that moves something to a device; of a device that has a name, the only move there."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        leave_out(draft, statement, target)
        if draft.changes:
            return
        moves = calls_named(draft.code.parts(statement), "to", target.kind)
        match [call for call in moves if not any(isinstance(each, ast.Constant) for each in arguments_in(call))]:
            case [ast.Call(func=ast.Attribute(value=moved)) as only]:
                draft.unwrap(only, moved)

    return mended(site, summary, change)


def leave_out(draft: Draft, statement: ast.stmt, target: DeviceId) -> None:
    """Take `.cpu()`, or `.to('cpu')`, off every tensor of a statement."""
    for call in draft.code.calls(statement):
        if isinstance(call.func, ast.Attribute) and goes_to(call, target):
            draft.unwrap(call, call.func.value)
