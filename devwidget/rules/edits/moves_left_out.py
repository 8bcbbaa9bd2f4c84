"""Moves left out: the line of a move without the call that makes it, so that a tensor stays where it was."""

from __future__ import annotations

import ast

from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.site import Site
from devwidget.rules.edits.devices import goes_to
from devwidget.rules.edits.draft import Draft, mended


def without_move(site: Site | None, target: DeviceId, summary: str) -> Fix | None:
    """A line without the calls that move something to a device."""
    return mended(site, summary, leave_out, target)


def leave_out(draft: Draft, statement: ast.stmt, target: DeviceId) -> None:
    """Take `.cpu()`, or `.to('cpu')`, off every tensor of a statement."""
    for call in draft.code.calls(statement):
        if isinstance(call.func, ast.Attribute) and goes_to(call, target):
            draft.unwrap(call, call.func.value)
