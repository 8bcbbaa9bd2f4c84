"""Moves at the line that made a stray tensor: the device in its call, or a move of what the call returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import HOST_CONSTRUCTORS, PLACING_METHODS
from devwidget.records.finding import Confidence, Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import parsed_expression, targets_of
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.calls import FACTORIES, LIKENESSES
from devwidget.rules.edits.devices import device_at_hand, written_device
from devwidget.rules.edits.draft import Draft, fix, map_location
from devwidget.rules.edits.source_file import Code, code_at, root_of

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


def where_made(fault: Fault, stray: Operand, *, literal: bool) -> Fix | None:
    """`device=...` in the calls that made the strays, or a move of what they return.

    Args:
        literal: whether a device may be named where no tensor on it is at hand: not in a block that runs on two.
    """
    drafts: dict[str, Draft] = {}
    for each in [stray, *(o for o in fault.operands if o.stray and o is not stray and o.birth is not None)]:
        at = code_at(each.birth, each.birth_call)
        if at is None or each.birth is None or not _made_here(drafts.setdefault(each.birth.file, Draft(at[0])), at[1], each,
                                                              fault, literal=literal):  # fmt: skip
            return None
    (draft, *more) = drafts.values()
    if more:
        return None
    return fix(Message("make it on the right device"), draft, "sure" if stray.birth_partners else "likely")


def _made_here(draft: Draft, statement: ast.stmt, stray: Operand, fault: Fault, *, literal: bool) -> bool:
    calls = [node for node in draft.code.alike(statement, stray.birth_call) if isinstance(node, ast.Call)]
    device = device_there(draft.code, statement, stray, fault, literal=literal)
    factory = bool(calls) and stray.birth_direct and stray.birth_op in FACTORIES
    wrapped = getattr(statement, "value", None)
    if (
        device
        and isinstance(wrapped, ast.Call)
        and wrapped.args
        and ast.unparse(wrapped.func).endswith(("Parameter", "Buffer"))
    ):
        _moved_within(draft, wrapped.args[0], device)  # the copy of a parameter would be none
        return True
    if device and not factory and (within := _tensors_within(statement, stray)):
        for call in within:
            draft.keyword(call, "device", device)
        return True
    if device and not factory and (module := _module_made(statement, stray)) is not None:
        draft.append(module, f".to({device})")
        return True
    if not device or not calls or (not stray.birth_direct and stray.birth_op not in _ARRIVALS):
        return False
    takes_device = stray.birth_op in FACTORIES | LIKENESSES
    told = any(keyword.arg == "device" for call in calls for keyword in call.keywords)
    if told and any(draft.code.local_names(call) for call in calls):
        return False  # one line makes many, and somebody said where: the others may be right there
    if stray.birth_op != "pin_memory" and _is_pinned_later(draft.code, statement):
        return False  # only memory of the host is pinned
    for call in [*calls, *([] if told else _siblings(draft.code, statement, stray, calls))]:
        if alike := _likeness(call, stray, fault):
            draft.replace(call, alike)
        elif takes_device and not any(k.arg == "generator" for k in call.keywords):
            draft.keyword(call, "device", device)
        elif stray.birth_op == "load":  # it may give a dict of them, which has no `.to`
            if not map_location(draft, call, device):  # a library has read the file
                return False
        elif takes_device or stray.birth_op in _ARRIVALS:
            draft.append(call, f".to({device})")
        else:
            return False
    return _others_there(draft, statement, calls, device)


def _others_there(draft: Draft, statement: ast.stmt, calls: list[ast.Call], device: str) -> bool:
    """The same device for what other lines of the function make and an operator computes with it: `place * speed`.

    False where they would stay apart.
    """
    code, scope = draft.code, draft.code.scope(statement)
    mine = {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}
    if mine:
        meeting = [node for node in ast.walk(scope) if isinstance(node, ast.expr) and code.scope(node) is scope]
    else:
        meeting = []
    for node in meeting:
        names, beside = _met(code, node, mine)
        if not names and not beside:
            continue
        given = [n.value for n in ast.walk(scope) if isinstance(n, ast.Assign) and n is not statement
                 and {ast.unparse(target) for target in targets_of(n)} & names]  # fmt: skip
        for each in (*given, *beside):
            inside = (n for n in ast.walk(each) if isinstance(n, ast.Call))
            made = [call for call in inside if _is_factory(call) and not _is_moved(code, call)]
            if not made or any(keyword.arg in ("device", None) for call in made for keyword in call.keywords):
                continue
            written = code.statement_of(each)
            if written is None or not _has_value(code, written, device):
                return False
            for call in made:
                draft.keyword(call, "device", device)
    return True


def _met(code: Code, node: ast.expr, mine: set[str]) -> tuple[set[str], list[ast.expr]]:
    """The plain names that meet one of these in an operator, or in what is stacked, and what is written there beside them."""
    call = code.parents.get(node)
    stacked = isinstance(node, ast.List | ast.Tuple) and isinstance(call, ast.Call)
    if stacked and isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in _JOINING:
        parts = list(node.elts) if isinstance(node, ast.List | ast.Tuple) else []
    else:
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    named = [{n.id for n in ast.walk(part) if isinstance(n, ast.Name)} for part in parts]
    if not any(names & mine for names in named):
        return set(), []
    others = [(part, names) for part, names in zip(parts, named, strict=True) if not names & mine]
    return {name for _, names in others for name in names}, [part for part, _ in others] if stacked else []


def _has_value(code: Code, statement: ast.stmt, device: str) -> bool:
    node = parsed_expression(device)
    return isinstance(node, ast.Constant) or root_of(device) in code.bound(statement) or root_of(device) == "self"


def is_right_elsewhere(fault: Fault, stray: Operand) -> bool:
    """Whether somebody wrote to which GPU a stray belongs, and other lines than the failing call use it there."""
    at, used = code_at(stray.birth, stray.birth_call), code_at(fault.site, fault.expression)
    call = parsed_expression(stray.birth_call)
    told = stray.from_move or (isinstance(call, ast.Call) and any(keyword.arg == "device" for keyword in call.keywords))
    if at is None or used is None or not told or not stray.device.is_accelerator or str(fault.target) == "cpu":
        return False
    code, statement = at
    if used[0].file != code.file or code.scope(used[1]) is not code.scope(statement):
        return True
    names = {target.id for target in targets_of(statement) if isinstance(target, ast.Name)}
    failing = code.alike(used[1], fault.expression)
    reads = (n for n in ast.walk(code.scope(statement)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return any(n.id in names and statement.lineno < n.lineno <= used[1].lineno and code.parents.get(n) not in failing
               and _is_given(code, n) for n in reads)  # fmt: skip


def _is_given(code: Code, node: ast.expr) -> bool:
    """Whether an expression is an argument of a call, or computed with: not only asked for its shape."""
    return not isinstance(code.parents.get(node), ast.Attribute)


def _is_pinned_later(code: Code, statement: ast.stmt) -> bool:
    """Whether the function calls `.pin_memory()` of what the statement assigns."""
    names = {ast.unparse(target) for target in targets_of(statement)}
    for node in ast.walk(code.scope(statement)):
        if isinstance(node, ast.Attribute) and node.attr == "pin_memory" and ast.unparse(node.value) in names:
            return True
    return False


def _moved_within(draft: Draft, value: ast.expr, device: str) -> None:
    """`torch.randn(2, n) * 0.02` with a device for what it makes, else a move of the whole."""
    made = [n for n in ast.walk(value) if isinstance(n, ast.Call) and _is_factory(n)]
    if made and not any(keyword.arg == "device" for call in made for keyword in call.keywords):
        for call in made:
            draft.keyword(call, "device", device)
    else:
        draft.append(value, f".to({device})")


def _likeness(call: ast.Call, stray: Operand, fault: Fault) -> str:
    """`torch.zeros(x.shape)` that meets an `x` of another dtype is to be like `x`: `torch.zeros_like(x)`; "" for others."""
    name, shape = ast.unparse(call.func), call.args[0] if len(call.args) == 1 and not call.keywords else None
    method = shape.func if isinstance(shape, ast.Call) and not shape.args else shape
    known = f"{stray.birth_op}_like" in LIKENESSES
    if not known or not isinstance(method, ast.Attribute) or method.attr not in ("shape", "size"):
        return ""
    model = ast.unparse(method.value)
    others = [o for o in fault.operands if not o.stray and model in (o.expression, o.source) and o.dtype != stray.dtype]
    if others:
        return f"{name}_like({model})"
    return ""


def _siblings(code: Code, statement: ast.stmt, stray: Operand, calls: list[ast.Call]) -> list[ast.Call]:
    """Calls of the same function on the same line, or given to the same call, that were told no device either.

    `meshgrid(arange(h), arange(w))`, `Normal(zeros(3), ones(3))`.
    """
    around = [code.parents.get(call) for call in calls]
    return [
        node
        for node in code.parts(statement)
        if isinstance(node, ast.Call)
        and node not in calls
        and (
            ast.unparse(node.func) == ast.unparse(calls[0].func)
            or (_is_factory(node) and _are_joined(code, node, calls, around))
        )
        and stray.birth_op in FACTORIES
        and not any(keyword.arg in ("device", None) for keyword in node.keywords)
        and not _is_moved(code, node)
    ]


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


def _are_joined(code: Code, node: ast.AST, calls: list[ast.Call], around: list[ast.AST | None]) -> bool:
    """Whether a call is an argument of what another one is given to, or an operator computes with both."""
    if code.parents.get(node) in around:
        return True
    operators = [each for each in code.around(node) if isinstance(each, ast.BinOp | ast.Compare)]
    if any(each in code.around(node) for call in calls for each in _methods_of(code, call)):
        return True
    return any(each in operators for call in calls for each in code.around(call))


def _methods_of(code: Code, call: ast.expr) -> Iterator[ast.Call]:
    """The calls of methods of what a call makes: `masked_fill` of `torch.zeros(n, n).masked_fill(chosen, -1e9)`."""
    method = code.parents.get(call)
    after = code.parents.get(method) if isinstance(method, ast.Attribute) else None
    if isinstance(after, ast.Call) and after.func is method:
        yield after
        yield from _methods_of(code, after)


def _is_factory(node: ast.Call) -> bool:
    return ast.unparse(node.func).rpartition(".")[2] in FACTORIES


def _tensors_within(statement: ast.stmt, stray: Operand) -> list[ast.Call]:
    """`torch.zeros(3)` and `torch.ones(3)` of `prior = Normal(torch.zeros(3), torch.ones(3))` for the stray `prior.scale`."""
    value, names = getattr(statement, "value", None), [ast.unparse(each) for each in targets_of(statement)]
    if not isinstance(value, ast.Call) or len(names) != 1 or not stray.expression.startswith(f"{names[0]}."):
        return []
    inside = [node for part in (*value.args, *value.keywords) for node in ast.walk(part)]
    return [n for n in inside if isinstance(n, ast.Call) and _is_factory(n) and not any(k.arg == "device" for k in n.keywords)]


def _module_made(statement: ast.stmt, stray: Operand) -> ast.Call | None:
    """`nn.Linear(8, 8)` of `head = nn.Linear(8, 8)` for the stray `head.weight`; a container for `critic[0].weight`."""
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
    """Devices that the statement, then other lines of the same function, name by what has a value here."""
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


def from_helper(fault: Fault, stray: Operand) -> Fix | None:
    """`self.lstm(x, self.blank(n))`: what the helper returns is made without a device."""
    at, call = code_at(fault.site, fault.expression), parsed_expression(fault.expression)
    partners = [o.expression for o in fault.operands if not o.stray and o.device == fault.target]
    device = next((f"{name}.device" for name in partners if name.startswith("self.")), "")
    if at is None or not isinstance(call, ast.Call) or not device or stray.expression:
        return None
    draft = Draft(at[0])
    helpers = {ast.unparse(n.func).removeprefix("self.") for a in call.args for n in ast.walk(a) if isinstance(n, ast.Call)}
    for function in ast.walk(draft.code.tree):
        returns = ast.walk(function) if isinstance(function, ast.FunctionDef) and function.name in helpers else ()
        for node in (n for r in returns if isinstance(r, ast.Return) for n in ast.walk(r)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in FACTORIES:
                draft.keyword(node, "device", device)
    return fix(Message("make it on the right device"), draft)


def beside_what_is_kept(fault: Fault, stray: Operand) -> Fix | None:
    """`one = torch.tensor([h, t], device=self.device)`, made to be compared with `self.table` alone, is made where that is."""
    at, others = code_at(fault.site, fault.expression), [o.expression for o in fault.operands if not o.stray]
    if at is None or len(others) != 1 or "." not in stray.expression:
        return None
    code, name, scope = at[0], others[0], at[0].scope(at[1])
    uses = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name]
    made = [code.statement_of(n) for n in uses if isinstance(n.ctx, ast.Store)]
    if len(made) == 1 and len(uses) == 2 and isinstance(made[0], ast.Assign):
        inside = list(ast.walk(made[0].value))
    else:
        inside = []
    told = [n for n in inside if isinstance(n, ast.Call) and _is_factory(n) and any(k.arg == "device" for k in n.keywords)]
    draft = Draft(code)
    if len(told) == 1 and made[0] is not None and _has_value(code, made[0], stray.expression):
        draft.keyword(told[0], "device", f"{stray.expression}.device")
    return fix(Message("or make `{name}` where the other one is kept", name=name), draft, "choice")


def moved_there(fault: Fault, stray: Operand) -> Fix | None:
    """`positions.cuda()` that goes to another device than it is needed on: `positions.to(tokens.device)`."""
    if stray.from_move:
        at = code_at(stray.birth, stray.birth_call)
    else:
        at = None
    if at is None:
        return None
    code, statement = at
    device = _device_of_partner(fault, code, statement) or device_there(code, statement, stray, fault, literal=False)
    draft = Draft(code)
    for call in code.alike(statement, stray.birth_call):
        method = call.func if isinstance(call, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in PLACING_METHODS and isinstance(call, ast.Call):
            if not device or not _names_only_a_device(call) or code.local_names(call):
                return None
            moved = code.text(method.value)
            draft.replace(call, moved if device == f"{moved}.device" else f"{moved}.to({device})")
    return fix(Message("move it to the right device at once"), draft)


def _device_of_partner(fault: Fault, code: Code, statement: ast.stmt) -> str:
    """The device of what the stray met, if that has the same value at an earlier statement of the same function; ""."""
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


def value_moved(stray: Operand, device: str, confidence: Confidence = "likely") -> Fix | None:
    """`x = f(...)` becomes `x = f(...).to(device)` where the line made a tensor and nothing else."""
    at = code_at(stray.birth, stray.birth_call)
    if at is None or not isinstance(at[1], ast.Assign | ast.AnnAssign) or at[1].value is None:
        return None
    (only, *more) = targets_of(at[1])
    value = at[1].value
    if isinstance(value, ast.IfExp):
        ways = [value.body, value.orelse]
    else:
        ways = [value]
    makes_more = any(isinstance(way, _CONTAINERS) for way in ways)
    if _is_pinned_later(at[0], at[1]):
        return None
    made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2][:1].isupper()
    holds = isinstance(value, ast.Call) and not stray.birth_call and stray.held is None  # `parts = build()`: an item of it
    if more or makes_more or made or holds or not isinstance(only, ast.Name | ast.Attribute):
        return None
    draft = Draft(at[0])
    if moved := _moved_by(at[0], value):
        draft.replace(value, f"{moved}.to({device})")  # there at once, and not by way of the wrong one
    else:
        draft.append(value, f".to({device})")
    return fix(Message("move it where it is made"), draft, confidence)


def _moved_by(code: Code, value: ast.expr) -> str:
    """`x` of a value `x.to('cuda:0')`; "" for one that is no move, or casts as well."""
    method = value.func if isinstance(value, ast.Call) and _names_only_a_device(value) else None
    if isinstance(method, ast.Attribute) and _is_moved(code, method.value):
        return code.text(method.value)
    return ""
