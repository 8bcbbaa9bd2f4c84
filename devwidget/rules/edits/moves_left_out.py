"""Moves left out: the line of a move without the call that makes it, so that a tensor stays where it was."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS, DeviceId
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import targets_of
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.source_file import Code, Function, code_at

_READS_ON_HOST = ("numpy", "tolist", "item", "map_", "apply_")


def without_move(site: Site | None, target: DeviceId, summary: str) -> Fix | None:
    """A line without the call that moves something to a device; of a device that has a name, the only move there."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        leave_out(draft, statement, target)
        if draft.changes:
            moves = []
        else:
            moves = [each for each in _moves(draft, statement) if _may_go(*each, target)]
        for node, method in moves if len(moves) == 1 else ():
            draft.unwrap(node, method.value)

    return mended(site, summary, change)


def leave_out(draft: Draft, statement: ast.stmt, target: DeviceId) -> None:
    """Take `.cpu()`, or `.to('cpu')`, off every tensor of a statement."""
    for node, method in _moves(draft, statement):
        if _goes(node, method, target):
            draft.unwrap(node, method.value)


def left_in_forward(fault: Fault, stray: Operand) -> Fix | None:
    """A hand-written gradient whose `forward` takes along to another device what `backward` then meets: it stays there."""
    if stray.from_move:
        at = code_at(stray.birth, stray.birth_call)
    else:
        at = None
    function = at[0].scope(at[1]) if at is not None else None
    if at is None or not isinstance(function, Function) or not _is_forward_of(fault, at[0], function):
        return None
    reads = (node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute))
    if any(name in _READS_ON_HOST for name in reads):
        return None
    summary, (code, statement) = Message("leave it where it is, so that backward meets it there"), at
    moves = [method for _, method in _moves(Draft(code), statement)]
    if [code.text(target) for target in targets_of(statement)] == [code.text(method.value) for method in moves]:
        return mended(stray.birth, summary, Draft.remove)  # `x = x.cpu()`
    return without_move(stray.birth, stray.device, summary)


def _is_forward_of(fault: Fault, code: Code, function: Function) -> bool:
    """Whether a function is the `forward` whose `backward` failed, or returned what was in the wrong place."""
    owner, used = code.owner(function), code_at(fault.site, fault.expression)
    if owner is None or function.name != "forward" or not any("Function" in ast.unparse(base) for base in owner.bases):
        return False
    failed = used is not None and used[0].file == code.file and used[0].owner(used[1])
    return failed is owner or f".{fault.call}".endswith(f".{owner.name}.backward")


def _moves(draft: Draft, statement: ast.stmt) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PLACING_METHODS:
            yield node, node.func


def _goes(node: ast.Call, method: ast.Attribute, target: DeviceId) -> bool:
    """Whether a call names the device that a tensor went to."""
    if method.attr == "cpu":
        return target.kind == "cpu"
    given = [ast.unparse(each).replace(f"{target.kind}(", f"{target.kind}:") for each in _list_arguments(node)]
    return method.attr in ("to", target.kind) and any(str(target) in each for each in given)


def _may_go(node: ast.Call, method: ast.Attribute, target: DeviceId) -> bool:
    """Whether a call goes to a device that it does not write down: `.cuda()`, `.to(device)`."""
    bare = method.attr == target.kind and method.attr != "cpu"
    return bare or (method.attr == "to" and not any(isinstance(each, ast.Constant) for each in _list_arguments(node)))


def _list_arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]
