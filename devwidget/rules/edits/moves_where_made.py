"""Fix a misplaced tensor at the line that created it: a device in its call, or a move of the result."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import HOST_CONSTRUCTORS, PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression, targets_of
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.calls import FACTORIES, LIKENESSES
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.devices import device_at_hand, written_device
from devwidget.rules.edits.draft import Draft, fix, map_location
from devwidget.rules.edits.source_file import Code, code_at, names_in, root_of

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
_CONTAINERS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_JOINING = frozenset({"cat", "concat", "stack", "hstack", "vstack", "dstack", "column_stack"})
_PER_STEP = ("forward", "__call__")


def create_there(case: Case) -> Fix | None:
    """Add `device=...` to the calls that created the misplaced tensors, or move their results."""
    fault, stray = case.fault, case.stray
    others = [each for each in case.strays if each is not stray and each.birth is not None]
    drafts: dict[str, Draft] = {}
    for each in (stray, *others):
        at = code_at(each.birth, each.birth_call)
        if at is None:
            return None
        code, statement = at
        draft = drafts.setdefault(code.file, Draft(code))
        device = device_there(code, statement, each, fault, literal=case.literal)
        if not device or not _write_device(draft, statement, each, device):
            return None
    if len(drafts) > 1:
        return None
    return fix(Message("create it on the right device"), draft, "sure" if stray.birth_partners else "likely")


def _write_device(draft: Draft, statement: ast.stmt, stray: Operand, device: str) -> bool:
    """Write the device where the statement creates the tensor; False where it cannot be written."""
    code = draft.code
    calls = [node for node in code.alike(statement, stray.birth_call) if isinstance(node, ast.Call)]
    is_factory = bool(calls) and stray.birth_direct and stray.birth_op in FACTORIES
    if _write_in_parameter(draft, statement, device):
        return True
    if not is_factory and _write_in_whole(draft, statement, stray, device):
        return True
    if not calls or (not stray.birth_direct and stray.birth_op not in _ARRIVALS):
        return False
    is_placed = any(_has_keyword(call, "device") for call in calls)
    if is_placed and any(code.local_names(call) for call in calls):
        return False  # one line creates many on a given device, where the others may be right
    if stray.birth_op != "pin_memory" and _is_pinned_later(code, statement):
        return False  # only memory of the host is pinned
    if is_factory and not is_placed:
        for call in _neighbours(code, statement, calls):
            draft.keyword(call, "device", device)
    if is_factory and is_placed:
        calls += _equal_calls(code, statement, calls)
    return all(_with_device(draft, call, stray.birth_op, device) for call in calls)


def _write_in_parameter(draft: Draft, statement: ast.stmt, device: str) -> bool:
    """`nn.Parameter(torch.zeros(3, device=device))`: the copy of a parameter would be none."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call) or not value.args or not ast.unparse(value.func).endswith(("Parameter", "Buffer")):
        return False
    _move_within(draft, value.args[0], device)
    return True


def _write_in_whole(draft: Draft, statement: ast.stmt, stray: Operand, device: str) -> bool:
    """The device of the tensors that an object is built from, or a move of the module that is built."""
    within = _tensors_within(statement, stray)
    for call in within:
        draft.keyword(call, "device", device)
    module = None if within else _module_made(statement, stray)
    if module is not None:
        draft.append(module, f".to({device})")
    return bool(within) or module is not None


def _with_device(draft: Draft, call: ast.Call, function: str, device: str) -> bool:
    takes_device = function in FACTORIES | LIKENESSES
    if takes_device and not _has_keyword(call, "generator"):
        draft.keyword(call, "device", device)
        return True
    if function == "load":  # it may give a dict of them, which has no `.to`
        return map_location(draft, call, device)
    if takes_device or function in _ARRIVALS:
        draft.append(call, f".to({device})")
        return True
    return False


def _neighbours(code: Code, statement: ast.stmt, calls: list[ast.Call]) -> Iterator[ast.Call]:
    """Calls that create tensors too, with no device, and that meet what these create: in the statement, or by its name."""
    scope = code.scope(statement)
    names = {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}
    near: list[ast.AST] = [statement]
    met: set[str] = set()
    for node in ast.walk(scope):
        parts = _operands(code, node)
        read = {each.id for part in parts for each in names_in(part)}
        if read & names:
            near += parts
            met |= read - names
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and met.intersection(map(ast.unparse, node.targets)):
            near.append(node.value)
    for call in (node for each in near for node in ast.walk(each)):
        if isinstance(call, ast.Call) and call not in calls and _is_factory(call) and not _is_placed(code, call):
            yield call


def _equal_calls(code: Code, statement: ast.stmt, calls: list[ast.Call]) -> list[ast.Call]:
    """Return calls of the same function that equal these: they create their tensors on the same wrong device."""
    wanted = {ast.dump(call) for call in calls}
    found = (node for node in ast.walk(code.scope(statement)) if isinstance(node, ast.Call) and node not in calls)
    return [node for node in found if ast.dump(node) in wanted]


def _operands(code: Code, node: ast.AST) -> list[ast.expr]:
    """What an operator computes with, or `torch.cat` joins."""
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            call = code.parents.get(node)
            if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in _JOINING:
                return parts
    return []


def _is_placed(code: Code, call: ast.Call) -> bool:
    """Whether a device is written in a call, or behind it."""
    return any(keyword.arg in ("device", None) for keyword in call.keywords) or _is_moved(code, call)


def _has_keyword(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in call.keywords)


def is_right_elsewhere(case: Case) -> bool:
    """Return whether code names the GPU of a misplaced tensor, and other lines than the failing call use it there."""
    fault, stray = case.fault, case.stray
    at, used = code_at(stray.birth, stray.birth_call), code_at(fault.site, fault.expression)
    call = parsed_expression(stray.birth_call)
    is_written = stray.from_move or (isinstance(call, ast.Call) and _has_keyword(call, "device"))
    if at is None or used is None or not is_written or not stray.device.is_accelerator or case.is_wanted_on_host:
        return False
    code, statement = at
    scope = code.scope(statement)
    if used[0].file != code.file or code.scope(used[1]) is not scope:
        return True
    names = {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}
    failing = code.alike(used[1], fault.expression)
    for node in names_in(scope):
        is_between = isinstance(node.ctx, ast.Load) and statement.lineno < node.lineno <= used[1].lineno
        reader = code.parents.get(node)
        is_only_asked = isinstance(reader, ast.Attribute)  # for its shape
        if node.id in names and is_between and not is_only_asked and reader not in failing:
            return True
    return False


def _is_pinned_later(code: Code, statement: ast.stmt) -> bool:
    """Whether the function calls `.pin_memory()` of what the statement assigns."""
    names = {ast.unparse(target) for target in targets_of(statement)}
    for node in ast.walk(code.scope(statement)):
        if isinstance(node, ast.Attribute) and node.attr == "pin_memory" and ast.unparse(node.value) in names:
            return True
    return False


def _move_within(draft: Draft, value: ast.expr, device: str) -> None:
    """`torch.randn(2, n) * 0.02` with a device for what it makes, else a move of the whole."""
    made = [n for n in ast.walk(value) if isinstance(n, ast.Call) and _is_factory(n)]
    if made and not any(keyword.arg == "device" for call in made for keyword in call.keywords):
        for call in made:
            draft.keyword(call, "device", device)
    else:
        draft.append(value, f".to({device})")


def _is_moved(code: Code, call: ast.expr) -> bool:
    """Whether a method behind a call moves what it made: `torch.zeros(3).flatten().to(device)`."""
    method = code.parents.get(call)
    after = code.parents.get(method) if isinstance(method, ast.Attribute) else None
    if not isinstance(method, ast.Attribute) or not isinstance(after, ast.Call) or after.func is not method:
        return False
    told = [*after.args[:1], *(keyword.value for keyword in after.keywords if keyword.arg == "device")]
    only_cast = method.attr == "to" and all(_is_dtype(each) for each in told)
    return (method.attr in PLACING_METHODS and not only_cast) or _is_moved(code, after)


def _is_dtype(node: ast.expr) -> bool:
    """`torch.float64` or `x.dtype`."""
    return isinstance(node, ast.Attribute) and (node.attr == "dtype" or root_of(ast.unparse(node)) == "torch")


def _is_factory(node: ast.Call) -> bool:
    return ast.unparse(node.func).rpartition(".")[2] in FACTORIES


def _tensors_within(statement: ast.stmt, stray: Operand) -> list[ast.Call]:
    """Return `torch.zeros(3)` and `torch.ones(3)` of `prior = Normal(torch.zeros(3), torch.ones(3))` for `prior.scale`."""
    value, names = getattr(statement, "value", None), [ast.unparse(each) for each in targets_of(statement)]
    if not isinstance(value, ast.Call) or len(names) != 1 or not stray.expression.startswith(f"{names[0]}."):
        return []
    inside = [node for part in (*value.args, *value.keywords) for node in ast.walk(part)]
    return [n for n in inside if isinstance(n, ast.Call) and _is_factory(n) and not any(k.arg == "device" for k in n.keywords)]


def _module_made(statement: ast.stmt, stray: Operand) -> ast.Call | None:
    """Return `nn.Linear(8, 8)` of `head = nn.Linear(8, 8)` for `head.weight`; a container for `critic[0].weight`."""
    value, held = getattr(statement, "value", None), stray.held
    if len(targets_of(statement)) == 1:
        name = ast.unparse(targets_of(statement)[0])
    else:
        name = ""
    of_module = held is None or held.how in ("parameter", "buffer") or bool(held.note)
    if not isinstance(value, ast.Call) or not name or not of_module:
        return None
    holds = ast.unparse(value.func).rpartition(".")[2] in ("Sequential", "ModuleList", "ModuleDict")
    if ast.unparse(value.func).rpartition(".")[2] in ("Parameter", "Buffer"):
        return None
    if stray.expression.startswith((f"{name}.", f"{name}[") if holds else f"{name}."):
        return value
    return None


def device_there(code: Code, statement: ast.stmt, stray: Operand, fault: Fault, *, literal: bool) -> str:
    """An expression for the right device that has a value at the birth of a tensor; "" if there is none."""
    bound = code.bound(statement) | {name for node in ast.walk(statement) for name in code.local_names(node)}
    mentioned = {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript)}
    assigned = {ast.unparse(target) for target in targets_of(statement)}
    partners = stray.birth_partners or ((stray.birth_partner,) if stray.birth_partner else ())
    fragment = isinstance(code.scope(statement), ast.Module) and getattr(stray.birth, "function", "") not in ("", "<module>")
    sure = {*mentioned, *partners} if fragment else mentioned  # of a line alone nothing can be read about its function
    at_hand = [name for name in partners if name not in assigned and (name in sure or root_of(name) in bound)]
    known = sorted(at_hand, key=lambda name: name not in mentioned)
    if known:
        return f"{known[0]}.device"
    if literal and (named := device_at_hand(code, statement)):
        return named
    if literal and not _runs_each_step(code, statement):
        return written_device(code, statement, fault.target)
    elsewhere = _devices_asked_for(code, statement, bound)
    if elsewhere:
        return elsewhere[0]
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
    found: dict[str, None] = {}
    for place in (statement, scope if not isinstance(scope, ast.Module) else statement):
        for node in ast.walk(place):
            if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "device") and _known(node.value, bound):
                found[f"{ast.unparse(node.value)}.device"] = None
            method = node.func if isinstance(node, ast.Call) else None
            if isinstance(method, ast.Attribute) and method.attr in ("size", "new_zeros") and _known(method.value, bound):
                found[f"{ast.unparse(method.value)}.device"] = None
    return list(found)


def _known(node: ast.expr, bound: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in bound and node.id not in ("self", "config", "torch", "np")


def create_in_helper(case: Case) -> Fix | None:
    """`self.lstm(x, self.blank(n))`, where the method `blank` returns tensors that it creates without a device."""
    fault, stray = case.fault, case.stray
    at, call = code_at(fault.site, fault.expression), parsed_expression(fault.expression)
    own = (each.expression for each in fault.operands if not each.stray and each.device == fault.target)
    partner = next((name for name in own if name.startswith("self.")), "")
    if at is None or not isinstance(call, ast.Call) or not partner or stray.expression or stray.birth is not None:
        return None
    code, statement = at
    owner, draft = code.owner(statement), Draft(code)
    arguments = [node for argument in call.args for node in ast.walk(argument)]
    called = {ast.unparse(node.func) for node in arguments if isinstance(node, ast.Call)}
    for method in owner.body if owner is not None else ():
        if isinstance(method, ast.FunctionDef) and f"self.{method.name}" in called:
            for node in _returned_nodes(method):
                if isinstance(node, ast.Call) and _is_factory(node) and not _is_placed(code, node):
                    draft.keyword(node, "device", f"{partner}.device")
    return fix(Message("create it on the right device"), draft)


def _returned_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            yield from ast.walk(node)


def move_at_once(case: Case) -> Fix | None:
    """`positions.cuda()` that goes to another GPU than it is needed on: `positions.to(tokens.device)`."""
    fault, stray = case.fault, case.stray
    at = code_at(stray.birth, stray.birth_call)
    if at is None or not stray.from_move or case.is_wanted_on_host or is_right_elsewhere(case):
        return None
    code, statement = at
    device = _device_of_partner(fault, code, statement) or device_there(code, statement, stray, fault, literal=False)
    draft = Draft(code)
    for call in code.alike(statement, stray.birth_call):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in PLACING_METHODS:
            if not device or not _names_only_a_device(call) or code.local_names(call):
                return None
            moved = code.text(call.func.value)
            draft.replace(call, moved if device == f"{moved}.device" else f"{moved}.to({device})")
    return fix(Message("move it directly to the right device"), draft)


def _device_of_partner(fault: Fault, code: Code, statement: ast.stmt) -> str:
    """Return the device of another operand, if that has the same value at an earlier statement of the same function; ""."""
    used = code_at(fault.site, fault.expression)
    if used is None or used[0].file != code.file or code.scope(used[1]) is not code.scope(statement):
        return ""
    scope, bound = code.scope(statement), code.bound(statement)
    later = [n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and
             n.lineno >= statement.lineno]  # fmt: skip
    names = [o.expression for o in fault.operands if not o.stray and o.device == fault.target and o.expression]
    return next((f"{name}.device" for name in names if root_of(name) in bound and root_of(name) not in later), "")


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
    ways = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    if more or any(isinstance(way, _CONTAINERS) for way in ways) or not isinstance(only, ast.Name | ast.Attribute):
        return None
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func).rpartition(".")[2]
        is_part = not stray.birth_call and stray.held is None  # `parts = build()`: an item of it
        if name[:1].isupper() or is_part or stray.birth_op == "load":
            return None
    if _is_pinned_later(code, statement):
        return None
    draft, device = Draft(code), written_device(code, statement, fault.target)
    moved = _moved_by(code, value)
    if moved:
        draft.replace(value, f"{moved}.to({device})")  # there at once, and not by way of the wrong one
    else:
        draft.append(value, f".to({device})")
    return fix(Message("move it where it is created"), draft)


def _is_birth_of_the_call(case: Case) -> bool:
    """Whether the line that made it is the one that fails, or the one that has called that: it is over too late."""
    taken = case.fault.nearby.taken
    lines = [site for site in (case.fault.site, taken.called if taken is not None else None) if site is not None]
    birth = case.stray.birth
    return birth is not None and any((birth.file, birth.line) == (site.file, site.line) for site in lines)


def _moved_by(code: Code, value: ast.expr) -> str:
    """Return `x` for a value `x.to('cuda:0')`; "" for other values, and if it casts as well."""
    method = value.func if isinstance(value, ast.Call) and _names_only_a_device(value) else None
    if isinstance(method, ast.Attribute) and _is_moved(code, method.value):
        return code.text(method.value)
    return ""
