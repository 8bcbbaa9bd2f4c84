"""Move or cast a misplaced tensor at the line that uses it, if it was created in the right place."""

from __future__ import annotations

import ast

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import argument_names, is_inplace, nodes_in, parsed_expression, uses_of
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.source_file import Code, code_at, inner_names, root_of


def move_where_used(case: Case) -> Fix | None:
    """A move just before the failing line, or in it."""
    fault, strays = case.fault, case.strays
    at = code_at(fault.site, fault.expression)
    if at is None or not strays or isinstance(at[1], ast.Raise):
        return None
    code, statement = at
    draft = Draft(code)
    written = _find_written(case, code, statement)
    if written is not None:
        return _to_the_written(case, draft, statement, written)
    device = device_here(case, code, statement)
    if not device:
        return None
    move = f".to({device})"
    if device == "'cpu'":
        move = ".cpu()"
    if case.must_be_detached:
        move = f".detach(){move}"
    for stray in strays:
        is_moved = _move_operand(draft, statement, fault, stray, move) or _move_in_place(draft, statement, fault, stray, move)
        if not is_moved:
            return None
    for name in fault.nearby.alike:
        draft.insert_above(statement, f"{name} = {name}{move}")
    if draft.inserted:
        return fix(Message("move it before it is used"), draft)
    if isinstance(statement, ast.Assert):
        return None  # `assert x.to(y.device).device == y.device` asks nothing
    return fix(Message("move it where it is used"), draft)


def cast_where_used(fault: Fault, strays: list[Operand], cast: str, summary: str, *, is_inline: bool = False) -> Fix | None:
    """A cast just before the failing line, or in it."""
    at = code_at(fault.site, fault.expression)
    if at is None or not strays:
        return None
    code, statement = at
    draft = Draft(code)
    for stray in strays:
        if is_inline:
            is_cast = _inline(draft, statement, fault, stray, cast)
        else:
            is_cast = _move_operand(draft, statement, fault, stray, cast)
        if not is_cast:
            return None
    return fix(summary, draft)


def _find_written(case: Case, code: Code, statement: ast.stmt) -> Operand | None:
    """Return the misplaced tensor that the failing call, or its statement, writes into."""
    fault = case.fault
    if is_inplace(fault.call) and fault.operands[0].stray and fault.operands[0].shape:
        return fault.operands[0]
    for stray in case.strays:
        if any(map(code.is_written, code.alike(statement, stray.expression))):
            return stray
    return None


def _to_the_written(case: Case, draft: Draft, statement: ast.stmt, written: Operand) -> Fix | None:
    """`shadow.lerp_(p, w)`: what is written stays where it is, so the others go there."""
    name = _source_of(written)
    if not name:
        return None
    move = f".to({name}.device)"
    words = Message("move the other tensor to the device of the one that is written")
    if isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == name:
        draft.append(statement.value, move)
        return fix(words, draft)
    for other in case.fault.operands:
        if other.stray or not other.shape:
            continue
        if not _inline(draft, statement, case.fault, other, move):
            return None
    return fix(words, draft)


def _source_of(home: Operand) -> str:
    """`shadow[k]` of `shadow[k].mul_(decay)`: what can be read once more; "" for what would be computed once more."""
    node = parsed_expression(home.source)
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_inplace(node.func.attr):
        node = node.func.value
    if node is not None and not _computes(node):
        return ast.unparse(node)
    return home.expression


def device_here(case: Case, code: Code, statement: ast.stmt) -> str:
    """An expression for the right device at the failing line: a partner's, best one that the line itself names."""
    fault = case.fault
    is_kept = any(operand.stray and operand.held is not None for operand in fault.operands)
    if fault.target is not None and str(fault.target) == "cpu" and not is_kept:
        return "'cpu'"
    local = inner_names(statement)
    partners = []
    for operand in fault.operands:
        name = operand.expression or _plain(operand.source)
        if name and not operand.stray and operand.device == fault.target and root_of(name) not in local:
            partners.append(name)
    text = "\n".join(code.rows[statement.lineno - 1 : statement.end_lineno])
    partners.sort(key=lambda name: name not in text)
    named = [name for name in partners if root_of(name) not in fault.nearby.lists]  # the next run may have fewer items
    at_hand = [name for name in case.at_hand if name not in local]
    best = [*named, *at_hand, *partners]
    if best:
        return f"{best[0]}.device"
    if case.literal or case.is_wanted_on_host:
        return repr(str(fault.target))
    return ""


def _plain(text: str) -> str:
    """A source text that computes nothing."""
    node = parsed_expression(text)
    if node is None or _computes(node):
        return ""
    return text


def _computes(node: ast.expr) -> bool:
    return bool(nodes_in(node, ast.Call, ast.BinOp, ast.Compare))


def _move_operand(draft: Draft, statement: ast.stmt, fault: Fault, stray: Operand, move: str) -> bool:
    """Move a variable above the statement, or only in the call if other lines need it unmoved."""
    code, name = draft.code, stray.expression
    uses = code.alike(statement, name)
    is_variable = name.isidentifier() and is_local(code, statement, name) and not _is_compound(statement)
    is_inner = any(name in code.local_names(node) for node in uses)
    is_taken_away = fault.target != stray.device and stray.device.is_accelerator
    is_read_on = is_taken_away and _is_read_elsewhere(fault, code, statement, stray)  # where it meets others of its GPU
    if is_variable and not is_inner and not is_read_on:
        draft.insert_above(statement, f"{name} = {name}{move}")
        return True
    return _inline(draft, statement, fault, stray, move)


def _is_read_elsewhere(fault: Fault, code: Code, statement: ast.stmt, stray: Operand) -> bool:
    """Whether the statement reads a variable outside of the failing call, or a later statement reads it."""
    name = stray.expression
    uses = code.alike(statement, name)
    if not uses:
        return False
    if stray.source not in ("", name):  # the call takes what the line computes from it
        return True
    failing = _list_failing(code, statement, fault)
    if failing and not failing.issuperset(uses):
        return True
    return _is_read_below(code, statement, name)


def _list_failing(code: Code, statement: ast.stmt, fault: Fault) -> set[ast.AST]:
    """The nodes of the failing call; none where the statement does not contain the whole call."""
    return set[ast.AST]().union(*map(ast.walk, code.alike(statement, fault.expression)))


def _is_read_below(code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether a later statement of the function reads a variable before it gets another value."""
    last = statement.end_lineno or 0
    below = [node for node in uses_of(code.scope(statement), name) if node.lineno > last]
    first = min(below, key=lambda node: node.lineno, default=None)
    return first is not None and isinstance(first.ctx, ast.Load)


def _move_in_place(draft: Draft, statement: ast.stmt, fault: Fault, stray: Operand, move: str) -> bool:
    """What the line does not name: an item gets the moved tensor, and a module that the line calls is moved itself."""
    if _is_compound(statement):
        return False
    inner = inner_names(statement)
    place, call = parsed_expression(stray.expression), parsed_expression(fault.expression)
    if isinstance(place, ast.Subscript) and isinstance(place.slice, ast.Constant) and root_of(stray.expression) not in inner:
        text, every = stray.expression, ast.unparse(place.value)
        anew = f"{text}{move}"
        if isinstance(place.slice.value, int):
            text, anew = every, _container_anew(fault, draft.code, statement, place, move)
        if not anew:
            return False
        if text.isidentifier() and not is_local(draft.code, statement, text):  # an assignment would make it local
            uses = draft.code.alike(statement, text)
            for node in uses:
                draft.replace(node, anew)
            return bool(uses)
        draft.insert_above(statement, f"{text} = {anew}")
        return True
    if not isinstance(call, ast.Call):
        return False
    owner = ast.unparse(call.func)
    is_module = stray.held is not None and stray.held.how in ("parameter", "buffer")
    is_owner = stray.expression.startswith(f"{owner}.") or (is_module and owner.startswith("self."))
    if not is_owner or root_of(owner) in inner:
        return False
    draft.insert_above(statement, f"{owner}{move}")
    return True


def _container_anew(fault: Fault, code: Code, statement: ast.stmt, place: ast.Subscript, move: str) -> str:
    """`tuple(part.to(d) for part in state)`, or a list that the line passes to a call; "" for other values.

    A tuple is immutable; of one that has other parts, the misplaced one alone is moved.
    """
    name, index = ast.unparse(place.value), ast.unparse(place.slice)
    is_passed = any(isinstance(code.parents.get(node), ast.Call) for node in code.alike(statement, name))
    if name in fault.nearby.lists and is_passed:
        return f"[each{move} for each in {name}]"  # how many there are, another run may tell
    count = dict(fault.nearby.tuples).get(name)
    if count is None:
        return ""
    parts = [operand for operand in fault.operands if operand.expression.startswith(f"{name}[")]
    if sum(operand.stray for operand in parts) == count:
        return f"tuple(part{move} for part in {name})"
    return f"(*{name}[:{index}], {name}[{index}]{move}, *{name}[{int(index) + 1}:])"


def _inline(draft: Draft, statement: ast.stmt, fault: Fault, operand: Operand, move: str) -> bool:
    """Move an operand where the failing call reads it; in the whole statement if that does not contain the full call."""
    code = draft.code
    failing = _list_failing(code, statement, fault)
    for text in (operand.source, operand.expression):
        read = [node for node in code.alike(statement, text) if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)]
        in_call = [node for node in read if node in failing]
        for node in in_call or read:
            draft.append(node, move)
        if read:
            return True
    return False


def _is_compound(statement: ast.stmt) -> bool:
    return bool(getattr(statement, "body", None) or getattr(statement, "cases", None))


def is_local(code: Code, statement: ast.stmt, name: str) -> bool:
    """Return True for a variable or argument of the function around the statement, or of the module at top level."""
    scope = code.scope(statement)
    if isinstance(scope, ast.Module | ast.ClassDef):
        return isinstance(scope, ast.Module)
    return name in argument_names(scope) or bool(code.stores(scope, name))
