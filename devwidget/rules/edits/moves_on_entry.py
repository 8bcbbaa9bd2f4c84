"""Move a misplaced tensor where it comes in, if it was passed on or computed with before the failure."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.syntax import Function, arguments_in, name_of_called, names_in, nodes_in
from devwidget.records.trace import Operand
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.devices import written_device
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.refusals import IN_WORKERS
from devwidget.rules.edits.source_file import Code, code_at


def move_to_called_module(case: Case) -> Fix | None:
    """`reference(x.to(next(reference.parameters()).device))` for a model that is on another GPU as a whole.

    Its class is innocent: other models of it are where their inputs are.
    """
    given = case.stray.given
    if given is None:
        return None

    def change(draft: Draft, statement: ast.stmt) -> None:
        for call in draft.code.calls(statement):
            if ast.unparse(call.func) != given.module:
                continue
            for each in arguments_in(call):
                if ast.unparse(each) == given.name:
                    draft.append(each, f".to(next({given.module}.parameters()).device)")

    return mended(given.site, Message("move it where the module is called"), change)


def move_in_loop(case: Case) -> Fix | None:
    """`words = words.to(device)` at the head of the loop that took it from a loader, with what meets it further down.

    Moved in `forward`, it would still be on the CPU where the loss needs it; made on a GPU by the data set, it would be
    refused by the processes that load. What goes to the host is wanted there by one line, not by the whole turn.
    """
    taken = case.fault.nearby.taken
    if taken is None or not case.literal or case.is_wanted_on_host:
        return None
    at = code_at(taken.site)
    if at is None:
        return None
    code, statement = at
    kinds = dict(taken.kinds)
    loop = _loop_around(code, statement, taken.holding)
    if loop is None or loop.body[0].lineno == loop.lineno or not _is_loaded(code, loop, case.stray):
        return None
    variables = _names_taken(loop)
    name = next(each for each in taken.holding if each in variables)
    if name not in kinds:
        return None
    names = [name]
    for each in variables:
        if each in kinds and each != name and _meets(loop, each):
            names.append(each)
    site = case.fault.site
    fails_inside = site is not None and site.file == code.file and loop.lineno <= site.line <= (loop.end_lineno or 0)
    if len(names) == 1 and not taken.device and fails_inside and case.stray.expression == name:
        return None  # the failing line knows a tensor that is there, the head of the loop no more than a literal
    if taken.device in _names_stored(loop):
        return None
    device = taken.device or written_device(code, loop.body[0], case.fault.target)
    moves = [_write_move(each, kinds[each], device) for each in names]
    draft = Draft(code)
    draft.insert_above(loop.body[0], f"{', '.join(names)} = {', '.join(moves)}")
    return fix(_WHERE_IT_ENTERS, draft)


def move_what_was_handed_out(case: Case) -> Fix | None:
    """Insert `graph = graph.to(device)` below the line that got an object or a batch with more than the misplaced tensor in it.

    What else is in it is needed as soon as that is moved: by the next line, as often as not.
    """
    taken = case.fault.nearby.taken
    if taken is None or not case.literal:
        return None
    kinds = dict(taken.kinds)
    names = [each for each in taken.holding if kinds.get(each, "tensor") != "tensor"]
    at = code_at(taken.site)
    if at is None or not names:
        return None
    (code, statement), name = at, names[0]
    bound = _sole_binding(code, statement, name)
    if bound is None or not (kinds[name] == "object" or _is_loaded(code, bound, case.stray)):
        return None
    draft = Draft(code)
    draft.insert_below(bound, f"{name} = {_write_move(name, kinds[name], written_device(code, bound, case.fault.target))}")
    return fix(_WHERE_IT_ENTERS, draft)


_WHERE_IT_ENTERS = Message("move it where it enters the function")


def _sole_binding(code: Code, statement: ast.stmt, name: str) -> ast.Assign | None:
    """The one line above a statement that gives a variable of its function what a call or a container hands out."""
    match [code.parents[node] for node in code.stores(code.scope(statement), name)]:
        case [ast.Assign(targets=[_], value=ast.Call() | ast.Subscript()) as only] if only.lineno < statement.lineno:
            return only
    return None


def _names_stored(tree: ast.AST) -> set[str]:
    """Return the variables that get a value in a tree."""
    return {node.id for node in nodes_in(tree, ast.Name) if isinstance(node.ctx, ast.Store)}


def _write_move(name: str, kind: str, device: str) -> str:
    """The move of a tensor, or of those in a container."""
    pairs = f"value.to({device})"
    return {
        "tensor": f"{name}.to({device})",
        "object": f"{name}.to({device})",
        "dict": f"{{key: {pairs} for key, value in {name}.items()}}",
        "dict of more": f"{{key: {pairs} if hasattr(value, 'to') else value for key, value in {name}.items()}}",
        "list": f"[each.to({device}) for each in {name}]",
        "tuple": f"tuple(each.to({device}) for each in {name})",
        "list of dicts": f"[{{key: {pairs} for key, value in each.items()}} for each in {name}]",
    }[kind]


def _loop_around(code: Code, statement: ast.stmt, names: Sequence[str]) -> ast.For | None:
    """The innermost loop around a statement, or that it is, that gives one of these names its value."""
    for each in (statement, *code.around(statement)):
        if isinstance(each, ast.For) and not set(names).isdisjoint(_names_taken(each)):
            return each
    return None


def _names_taken(loop: ast.For) -> list[str]:
    """The variables of a loop, without the number that `enumerate` counts."""
    counted = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "enumerate"
    if counted and isinstance(loop.target, ast.Tuple):
        return names_in(loop.target.elts[-1])
    return names_in(loop.target)


def _is_loaded(code: Code, taker: ast.stmt, stray: Operand) -> bool:
    """Whether a data set made the tensor, or a loader put it together on the line that takes it."""
    if stray.birth is None:
        return False
    if (stray.birth.file, stray.birth.line) == (code.file, taker.lineno):
        return True  # whatever library has made it there
    at = code_at(stray.birth, stray.birth_call)
    if at is None:
        return False
    owner, methods = at[0].owner(at[1]), set[str]()
    if owner is not None:
        methods = {getattr(each, "name", "") for each in owner.body}
    return bool(methods & {"__getitem__", "__getitems__"}) or stray.birth.function in IN_WORKERS


def _meets(loop: ast.For, name: str) -> bool:
    """Whether a call or an operator of the body is given a variable together with another one."""
    for node in itertools.chain.from_iterable(map(ast.walk, loop.body)):
        given = _given_together(node)
        others = set[str]().union(*map(names_in, given)) - {name}
        if others and name in map(ast.unparse, given):
            return True
    return False


def _given_together(node: ast.AST) -> list[ast.expr]:
    """What an operator computes with, or a call is given."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call() if name_of_called(node) not in _ON_HOST:
            return arguments_in(node)
    return []


_ON_HOST = frozenset({"pack_padded_sequence", "print", "zip", "append"})
"""Calls whose arguments may stay on the host while others are on a GPU."""


def move_in_the_loop(created: Site | None, loop: Site | None) -> Fix | None:
    """Leave out the devices in the function of the worker, and move the variables of the loop in its first lines.

    Args:
        created: a line of the function that runs in the worker.
        loop: the line of the loop over the loader.
    """
    there, here = code_at(created), code_at(loop)
    if there is None or here is None or there[0].file != here[0].file:
        return None
    (code, statement), (_, head) = there, here
    function, draft = code.scope(statement), Draft(code)
    if not isinstance(function, Function) or not isinstance(head, ast.For) or not isinstance(head.target, ast.Tuple):
        return None
    devices = set[str]()
    for call in nodes_in(function, ast.Call):
        devices.update(_leave_out_device(draft, call))
    if len(devices) != 1:
        return None
    device, taken = devices.pop(), _names_taken(head)
    moved = ", ".join(f"{name}.to({device})" for name in taken)
    draft.insert_above(head.body[0], f"{', '.join(taken)} = {moved}")
    return fix(Message("create the tensors on the CPU, and move each batch in the loop"), draft)


def _leave_out_device(draft: Draft, call: ast.Call) -> list[str]:
    """Remove the device of a call; return its source."""
    for keyword in call.keywords:
        if keyword.arg == "device":
            rest = [each for each in call.keywords if each is not keyword]
            draft.replace(call, ast.unparse(ast.Call(call.func, call.args, rest)))
            return [ast.unparse(keyword.value)]
    if isinstance(call.func, ast.Attribute) and call.func.attr in PLACING_METHODS:
        draft.drop_method(call)
        if call.func.attr == "to":
            return [ast.unparse(argument) for argument in call.args[:1]]
        return [repr(call.func.attr)]
    return []
