"""Fix a misplaced tensor at the line that created it: a device in its call, or a move of the result."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from devwidget.records.device import HOST_CONSTRUCTORS, PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import (
    arguments_in,
    calls_named,
    name_of_called,
    names_in,
    nodes_in,
    parsed_expression,
    targets_of,
)
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.calls import FACTORIES, LIKENESSES
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.devices import is_move, written_device
from devwidget.rules.edits.draft import Draft, fix, read_to
from devwidget.rules.edits.moves_where_used import is_local
from devwidget.rules.edits.source_file import Code, code_at, inner_names, keyword_of, root_of

_ARRIVALS = HOST_CONSTRUCTORS | {
    "from_numpy",
    "frombuffer",
    "from_dlpack",
    "load",
    "as_tensor",
    "asarray",
    "Parameter",
    "clone",
}
_JOINING = frozenset({"cat", "concat", "stack", "hstack", "vstack", "dstack", "column_stack"})
_PER_STEP = ("forward", "__call__")


def create_there(case: Case) -> Fix | None:
    """Add `device=...` to the calls that created the misplaced tensors, or move their results."""
    fault, stray = case.fault, case.stray
    known = [each for each in case.strays if each.birth is not None]
    others = [each for each in known if each is not stray]
    drafts: dict[str, Draft] = {}
    for each in (stray, *others):
        at = code_at(each.birth, each.birth_call)
        if at is None:
            return None
        code, statement = at
        draft = drafts.setdefault(code.file, Draft(code))
        device = device_there(code, statement, each, fault, literal=case.literal and not each.from_move)
        if not device or not _write_device(draft, statement, each, device):
            return None
    if len(drafts) > 1:
        return None
    words = Message("create it on the right device")
    if stray.from_move:
        words = Message("move it directly to the right device")
    return fix(words, draft, "sure" if stray.birth_partners else "likely")


def _write_device(draft: Draft, statement: ast.stmt, stray: Operand, device: str) -> bool:
    """Write the device where the statement creates the tensor; False where it cannot be written."""
    code, value = draft.code, getattr(statement, "value", None)
    calls = code.calls(statement, stray.birth_call)
    if stray.from_move:
        return _move_at_once(draft, calls, device)
    is_factory = bool(calls) and stray.birth_direct and stray.birth_op in FACTORIES
    if isinstance(value, ast.Call) and (_is_parameter(value) or (not is_factory and _makes_owner(statement, value, stray))):
        _place(draft, value, device)
        return True
    if not calls or not _may_be_placed(code, statement, calls, stray):
        return False
    if stray.birth_op == "load":  # it may give a dict of them, which has no `.to`
        return read_to(draft, statement, device)
    for call in calls:
        _place(draft, call, device)
    if is_factory and not _names_device(calls):
        for call in _neighbours(code, statement, calls):
            if _is_known(code, call, device):
                _place(draft, call, device)
    return True


def _may_be_placed(code: Code, statement: ast.stmt, calls: list[ast.Call], stray: Operand) -> bool:
    """Whether the calls create the tensor, and nothing else of theirs must stay where it is."""
    if stray.birth_op not in FACTORIES | LIKENESSES | _ARRIVALS:
        return False
    if not stray.birth_direct and stray.birth_op not in _ARRIVALS:
        return False
    if _names_device(calls) and any(code.local_names(call) for call in calls):
        return False  # one line creates many on a given device, where the others may be right
    return stray.birth_op == "pin_memory" or not _is_pinned_later(code, statement)  # only memory of the host is pinned


def _names_device(calls: list[ast.Call]) -> bool:
    return any(keyword_of(call, "device") for call in calls)


def _place(draft: Draft, made: ast.expr, device: str) -> None:
    """Pass the device to what creates the tensors of an expression; move the result where nothing in it takes a device."""
    if isinstance(made, ast.Call) and _is_parameter(made):  # the copy of a parameter would be none
        _place(draft, made.args[0], device)
    elif makers := _makers(made):
        for call in makers:
            draft.keyword(call, "device", device)
    else:
        draft.append(made, f".to({device})")


def _makers(made: ast.expr) -> list[ast.Call]:
    """The calls of an expression that take a device, `zeros` and `ones` of `Normal(torch.zeros(3), torch.ones(3))`."""
    if isinstance(made, ast.Call) and name_of_called(made) in FACTORIES | LIKENESSES:
        makers, refusing = [made], "generator"
    else:
        makers, refusing = list(calls_named(ast.walk(made), *FACTORIES)), "device"
    if any(keyword_of(call, refusing) for call in makers):
        return []
    return makers


def _is_parameter(call: ast.Call) -> bool:
    return bool(call.args) and name_of_called(call) in ("Parameter", "Buffer")


def _makes_owner(statement: ast.stmt, value: ast.Call, stray: Operand) -> bool:
    """Whether a line builds the object or the module that has the tensor: `head = nn.Linear(8, 8)` for `head.weight`."""
    held, targets = stray.held, targets_of(statement)
    if len(targets) != 1:
        return False
    name, is_container = ast.unparse(targets[0]), name_of_called(value) in ("Sequential", "ModuleList", "ModuleDict")
    if is_container and not arguments_in(value):
        return False  # another line puts the modules into it
    is_inside = stray.expression.startswith(f"{name}.") or (is_container and stray.expression.startswith(f"{name}["))
    if not is_inside:
        return False
    return bool(_makers(value)) or held is None or held.how in ("parameter", "buffer") or bool(held.note)


def _is_known(code: Code, call: ast.Call, device: str) -> bool:
    """Whether the expression for the device has a value where a call is."""
    statement, name = code.statement_of(call), root_of(device)
    if statement is None or not name.isidentifier() or not is_local(code, statement, name):
        return True
    return name in code.bound(statement)


def _neighbours(code: Code, statement: ast.stmt, calls: list[ast.Call]) -> Iterator[ast.Call]:
    """Calls that create tensors too, with no device, and that meet what these create: in the statement, or by its name."""
    scope = code.scope(statement)
    names = {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}
    near: list[ast.AST] = [statement]
    met: set[str] = set()
    for node in ast.walk(scope):
        parts = _operands(code, node)
        read = set[str]().union(*map(names_in, parts))
        has_one_of_these = not set(calls).isdisjoint(itertools.chain.from_iterable(map(ast.walk, parts)))
        if has_one_of_these or read & names:
            near += parts
            met |= read - names
    for assignment in nodes_in(scope, ast.Assign):
        if met.intersection(map(ast.unparse, assignment.targets)):
            near.append(assignment.value)
    for part in near:
        for call in calls_named(ast.walk(part), *FACTORIES):
            if call not in calls and not _is_placed(code, call):
                yield call


def _operands(code: Code, node: ast.AST) -> list[ast.expr]:
    """What an operator or a function of torch computes with, or `torch.cat` joins."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=parts) if name not in FACTORIES:
            return parts
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            call = code.parents.get(node)
            if isinstance(call, ast.Call) and name_of_called(call) in _JOINING:
                return parts
    return []


def _is_placed(code: Code, call: ast.Call) -> bool:
    return any(keyword.arg in ("device", None) for keyword in call.keywords) or _is_moved(code, call)


def is_right_elsewhere(case: Case) -> bool:
    """Return whether code names the GPU of a misplaced tensor, and other lines than the failing call use it there."""
    fault, stray = case.fault, case.stray
    at, used = code_at(stray.birth, stray.birth_call), code_at(fault.site, fault.expression)
    call = parsed_expression(stray.birth_call)
    is_written = stray.from_move or (isinstance(call, ast.Call) and keyword_of(call, "device") is not None)
    if at is None or used is None or not is_written or not stray.device.is_accelerator or case.is_wanted_on_host:
        return False
    code, statement = at
    scope = code.scope(statement)
    if used[0].file != code.file or code.scope(used[1]) is not scope:
        return True
    names = {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}
    failing = code.alike(used[1], fault.expression)
    for node in nodes_in(scope, ast.Name):
        is_between = isinstance(node.ctx, ast.Load) and statement.lineno < node.lineno <= used[1].lineno
        reader = code.parents.get(node)
        if isinstance(reader, ast.keyword):
            reader = code.parents[reader]
        is_only_asked = isinstance(reader, ast.Attribute)  # for its shape
        if node.id in names and is_between and not is_only_asked and reader not in failing:
            return True
    return False


def _is_pinned_later(code: Code, statement: ast.stmt) -> bool:
    names = {ast.unparse(target) for target in targets_of(statement)}
    for call in calls_named(ast.walk(code.scope(statement)), "pin_memory"):
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in names:
            return True
    return False


def _is_moved(code: Code, call: ast.expr) -> bool:
    """Whether a method behind a call moves what it made: `torch.zeros(3).flatten().to(device)`."""
    method = code.parents.get(call)
    if not isinstance(method, ast.Attribute):
        return False
    after = code.parents.get(method)
    if not isinstance(after, ast.Call) or after.func is not method:
        return False
    return is_move(after) or _is_moved(code, after)


def device_there(code: Code, statement: ast.stmt, stray: Operand, fault: Fault, *, literal: bool) -> str:
    """An expression for the right device that has a value at the birth of a tensor; "" if there is none."""
    bound = code.bound(statement) | inner_names(statement)
    mentioned = set(map(ast.unparse, nodes_in(statement, ast.Name, ast.Attribute, ast.Subscript)))
    assigned = set(map(ast.unparse, targets_of(statement)))
    partners = stray.birth_partners or (stray.birth_partner,)
    is_in_function = getattr(stray.birth, "function", "") not in ("", "<module>")
    is_line_alone = is_in_function and isinstance(code.scope(statement), ast.Module)  # nothing is known about its function
    for name in sorted(partners, key=lambda name: name not in mentioned):
        is_sure = is_line_alone or name in mentioned or root_of(name) in bound
        if name and name not in assigned and is_sure:
            return f"{name}.device"
    if literal and not _runs_each_step(code, statement):
        return written_device(code, statement, fault.target)
    asked = _devices_asked_for(code, statement, bound)
    if asked:
        return asked[0]
    if literal:
        return written_device(code, statement, fault.target)
    return ""


def _runs_each_step(code: Code, statement: ast.stmt) -> bool:
    """True inside a method of a class other than its initialisers, and in a function that is given something."""
    scope = code.scope(statement)
    if isinstance(scope, ast.Module | ast.ClassDef) or scope.name == "__init__":
        return False
    given = [a.arg for a in (*scope.args.posonlyargs, *scope.args.args)]
    return (given[:1] == ["self"] and scope.name in _PER_STEP) or len(given) > (given[:1] == ["self"])


def _devices_asked_for(code: Code, statement: ast.stmt, bound: set[str]) -> list[str]:
    """Return devices that the statement, then other lines of the function, name by expressions that have a value here."""
    scope = code.scope(statement)
    known, found = bound - {"self", "config", "torch", "np"}, dict[str, None]()
    places: list[ast.AST] = [statement]
    if not isinstance(scope, ast.Module):
        places.append(scope)
    for place in places:
        for node in ast.walk(place):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr="shape" | "dtype" | "device" | "size" | "new_zeros"):
                    if name in known:
                        found[f"{name}.device"] = None
    return list(found)


def create_in_helper(case: Case) -> Fix | None:
    """`self.lstm(x, self.blank(n))`, where the method `blank` returns tensors that it creates without a device."""
    fault, stray = case.fault, case.stray
    at, call = code_at(fault.site, fault.expression), parsed_expression(fault.expression)
    partners = []
    for each in fault.operands:
        if not each.stray and each.device == fault.target and each.expression.startswith("self."):
            partners.append(each.expression)
    if at is None or not isinstance(call, ast.Call) or not partners or stray.expression or stray.birth is not None:
        return None
    code, statement = at
    owner, draft = code.owner(statement), Draft(code)
    if owner is None:
        return None
    called = set[str]()
    for argument in arguments_in(call):
        called.update(ast.unparse(inner.func) for inner in nodes_in(argument, ast.Call))
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or f"self.{method.name}" not in called:
            continue
        for returned in nodes_in(method, ast.Return):
            for made in calls_named(ast.walk(returned), *FACTORIES):
                if not _is_placed(code, made):
                    draft.keyword(made, "device", f"{partners[0]}.device")
    return fix(Message("create it on the right device"), draft)


def _move_at_once(draft: Draft, calls: list[ast.Call], device: str) -> bool:
    """`positions.cuda()` that goes to another GPU than it is needed on: `positions.to(tokens.device)`."""
    code = draft.code
    for call in calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in PLACING_METHODS:
            continue
        if not _names_only_a_device(call) or code.local_names(call):
            return False
        moved = code.text(call.func.value)
        if device == f"{moved}.device":
            draft.replace(call, moved)
        else:
            draft.replace(call, f"{moved}.to({device})")
    return True


def _names_only_a_device(call: ast.Call) -> bool:
    return len(call.args) + len(call.keywords) <= 1 and all(keyword.arg == "device" for keyword in call.keywords)


def move_value(case: Case) -> Fix | None:
    """`x = f(...)` becomes `x = f(...).to(device)` where the line made a tensor and nothing else."""
    stray, fault = case.stray, case.fault
    at = code_at(stray.birth, stray.birth_call)
    if at is None or not isinstance(at[1], ast.Assign | ast.AnnAssign) or at[1].value is None or not case.literal:
        return None
    if _is_birth_of_the_call(case) or (not stray.from_move and is_right_elsewhere(case)):
        return None
    (code, statement), value = at, at[1].value
    (only, *more) = targets_of(statement)
    if more or not isinstance(only, ast.Name | ast.Attribute):
        return None
    if isinstance(value, ast.Call):
        name = name_of_called(value)
        is_part = not stray.birth_call and stray.held is None  # `parts = build()`: an item of it
        if name[:1].isupper() or is_part or stray.birth_op == "load":
            return None
    if _is_pinned_later(code, statement):
        return None
    draft, device = Draft(code), written_device(code, statement, fault.target)
    match value:
        case ast.Call(func=ast.Attribute(value=moved)) if _names_only_a_device(value) and _is_moved(code, moved):
            draft.replace(value, f"{code.text(moved)}.to({device})")  # there at once, and not by way of the wrong one
        case _:
            draft.append(value, f".to({device})")
    return fix(Message("move it where it is created"), draft)


def _is_birth_of_the_call(case: Case) -> bool:
    """Whether the line that made it is the one that fails, or the one that has called that: it is over too late."""
    birth, taken = case.stray.birth, case.fault.nearby.taken
    if birth is None:
        return False
    sites = [case.fault.site]
    if taken is not None:
        sites.append(taken.called)
    return any(site is not None and (site.file, site.line) == (birth.file, birth.line) for site in sites)
