"""Moves: edits that put a stray tensor where it belongs, at the line that made it or at the line that uses it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Confidence, Fix
from devwidget.records.syntax import parsed_expression
from devwidget.records.trace import Fault, Operand
from devwidget.rules.repairs.calls import FACTORIES, LIKENESSES
from devwidget.rules.repairs.code import Code, code_at, is_self, targets
from devwidget.rules.repairs.edits import Draft, fix

_ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load", "as_tensor", "asarray", "Parameter", "clone"})
_PER_STEP = ("forward", "__call__")


def where_made(fault: Fault, stray: Operand, *, literal: bool) -> Fix | None:
    """`device=...` in the calls that made the strays, or a move of what they return.

    Args:
        literal: whether a device may be named where no tensor on it is at hand: not in a block that runs on two.
    """
    drafts: dict[str, Draft] = {}
    for each in [stray, *(o for o in fault.operands if o.stray and o is not stray and o.birth is not None)]:
        at = code_at(each.birth)
        if at is None or each.birth is None or not _made_here(drafts.setdefault(each.birth.file, Draft(at[0])), at[1], each,
                                                              fault, literal=literal):  # fmt: skip
            return None
    (draft, *more) = drafts.values()
    return None if more else fix("make it on the right device", draft, "sure" if stray.birth_partners else "likely")


def _made_here(draft: Draft, statement: ast.stmt, stray: Operand, fault: Fault, *, literal: bool) -> bool:
    calls = [node for node in draft.code.alike(statement, stray.birth_call) if isinstance(node, ast.Call)]
    device = device_there(draft.code, statement, stray, fault, literal=literal)
    factory = bool(calls) and stray.birth_direct and stray.birth_op in FACTORIES
    if device and not factory and (module := _module_made(statement, stray)) is not None:
        draft.append(module, f".to({device})")
        return True
    if not device or not calls or (not stray.birth_direct and stray.birth_op not in _ARRIVALS):
        return False
    takes_device = stray.birth_op in FACTORIES | LIKENESSES
    told = any(keyword.arg == "device" for call in calls for keyword in call.keywords)
    if told and any(draft.code.local_names(call) for call in calls):
        return False  # one line makes many, and somebody said where: the others may be right there
    for call in [*calls, *([] if told else _siblings(draft.code, statement, stray, calls))]:
        if alike := _likeness(call, stray, fault):
            draft.replace(call, alike)
        elif takes_device and not any(k.arg == "generator" for k in call.keywords):
            draft.keyword(call, "device", device)
        elif takes_device or stray.birth_op in _ARRIVALS:
            draft.append(call, f".to({device})")
        else:
            return False
    return True


def _likeness(call: ast.Call, stray: Operand, fault: Fault) -> str:
    """`torch.zeros(x.shape)` that meets an `x` of another dtype is to be like `x`: `torch.zeros_like(x)`; "" for others."""
    name, shape = ast.unparse(call.func), call.args[0] if len(call.args) == 1 and not call.keywords else None
    method = shape.func if isinstance(shape, ast.Call) and not shape.args else shape
    known = f"{stray.birth_op}_like" in LIKENESSES
    if not known or not isinstance(method, ast.Attribute) or method.attr not in ("shape", "size"):
        return ""
    model = ast.unparse(method.value)
    others = [o for o in fault.operands if not o.stray and model in (o.expression, o.source) and o.dtype != stray.dtype]
    return f"{name}_like({model})" if others else ""


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
        and (ast.unparse(node.func) == ast.unparse(calls[0].func) or (_is_factory(node) and code.parents.get(node) in around))
        and stray.birth_op in FACTORIES
        and not any(keyword.arg in ("device", None) for keyword in node.keywords)
    ]


def _is_factory(node: ast.Call) -> bool:
    return ast.unparse(node.func).rpartition(".")[2] in FACTORIES


def _module_made(statement: ast.stmt, stray: Operand) -> ast.Call | None:
    """`nn.Linear(8, 8)` of `head = nn.Linear(8, 8)` for the stray `head.weight`; a container for `critic[0].weight`."""
    value = getattr(statement, "value", None)
    name = ast.unparse(targets(statement)[0]) if len(targets(statement)) == 1 else ""
    if not isinstance(value, ast.Call) or not name:
        return None
    holds = ast.unparse(value.func).rpartition(".")[2] in ("Sequential", "ModuleList", "ModuleDict")
    return value if stray.expression.startswith((f"{name}.", f"{name}[") if holds else f"{name}.") else None


def device_there(code: Code, statement: ast.stmt, stray: Operand, fault: Fault, *, literal: bool) -> str:
    """An expression for the right device that has a value at the birth of a tensor; "" if there is none."""
    bound = code.bound(statement) | {name for node in ast.walk(statement) for name in code.local_names(node)}
    mentioned = {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript)}
    assigned = {ast.unparse(target) for target in targets(statement)}
    partners = stray.birth_partners or ((stray.birth_partner,) if stray.birth_partner else ())
    fragment = isinstance(code.scope(statement), ast.Module) and getattr(stray.birth, "function", "") not in ("", "<module>")
    sure = {*mentioned, *partners} if fragment else mentioned  # of a line alone nothing can be read about its function
    at_hand = [name for name in partners if name not in assigned and (name in sure or _root(name) in bound)]
    known = sorted(at_hand, key=lambda name: name not in mentioned)
    if known:
        return f"{known[0]}.device"
    if literal and not _runs_each_step(code, statement):
        return repr(str(fault.target))
    elsewhere = _devices_asked_for(code, statement, bound)
    if elsewhere:
        return elsewhere[0]
    return repr(str(fault.target)) if literal else ""


def _root(name: str) -> str:
    return name.split(".")[0].split("[")[0]


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


def where_used(fault: Fault, strays: list[Operand], *, literal: bool) -> Fix | None:
    """A move just before the failing line, or in it."""
    at = code_at(fault.site)
    if at is None or not strays:
        return None
    code, statement = at
    draft = Draft(code)
    written = strays[0] if _is_inplace(fault.call) and fault.operands and fault.operands[0].stray else None
    if written is not None and fault.operands[0].shape:
        return _to_the_written(fault, draft, statement)
    device = device_here(fault, code, statement, literal=literal)
    if not device:
        return None
    move = ".cpu()" if device == "'cpu'" else f".to({device})"
    done = [
        _moved(draft, statement, fault, stray, move) or _moved_in_place(draft, statement, fault, stray, move)
        for stray in strays
    ]
    summary = "move it before it is used" if draft.inserted else "move it where it is used"
    return fix(summary, draft) if all(done) else None


def cast_where_used(fault: Fault, strays: list[Operand], cast: str, summary: str) -> Fix | None:
    """A cast just before the failing line, or in it."""
    at = code_at(fault.site)
    if at is None or not strays:
        return None
    draft = Draft(at[0])
    done = [_moved(draft, at[1], fault, stray, cast) for stray in strays]
    return fix(summary, draft) if all(done) else None


def _is_inplace(name: str) -> bool:
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _to_the_written(fault: Fault, draft: Draft, statement: ast.stmt) -> Fix | None:
    """`shadow.lerp_(p, w)`: what is written stays where it is, so the others go there."""
    home = fault.operands[0]
    name = home.expression or home.source
    others = [o for o in fault.operands[1:] if not o.stray and o.shape]
    if not name or not others:
        return None
    done = [_inline(draft, statement, other, f".to({name}.device)") for other in others]
    return fix("move the other to the tensor that is written", draft) if all(done) else None


def device_here(fault: Fault, code: Code, statement: ast.stmt, *, literal: bool) -> str:
    """An expression for the right device at the failing line: a partner's, best one that the line itself names."""
    if fault.target is not None and str(fault.target) == "cpu":
        return "'cpu'"
    local = {name for node in ast.walk(statement) for name in code.local_names(node)}
    partners = [
        name
        for o in fault.operands
        if not o.stray and o.device == fault.target and (name := o.expression or _plain(o.source)) and _root(name) not in local
    ]
    text = "\n".join(code.rows[statement.lineno - 1 : statement.end_lineno])
    at_hand = [name for name in dict(fault.facts).get("at hand", "").split() if name not in local]
    best = sorted(partners, key=lambda name: name not in text) or at_hand
    if best:
        return f"{best[0]}.device"
    return repr(str(fault.target)) if literal else ""


def _plain(text: str) -> str:
    """A source text that computes nothing."""
    node = parsed_expression(text) if text else None
    inner = ast.walk(node) if node is not None else ()
    return "" if node is None or any(isinstance(n, ast.Call | ast.BinOp | ast.Compare) for n in inner) else text


def _moved(draft: Draft, statement: ast.stmt, fault: Fault, stray: Operand, move: str) -> bool:
    name = stray.expression
    if name.isidentifier() and _is_local(draft.code, statement, name) and not _is_compound(statement):
        uses = draft.code.alike(statement, name)
        if (uses and not any(name in draft.code.local_names(node) for node in uses)) or not uses:
            draft.before(statement, f"{name} = {name}{move}")
            return True
    return _inline(draft, statement, stray, move)


def _moved_in_place(draft: Draft, statement: ast.stmt, fault: Fault, stray: Operand, move: str) -> bool:
    """What the line does not name: an item gets the moved tensor, and a module that the line calls is moved itself."""
    if _is_compound(statement):
        return False
    place, call = parsed_expression(stray.expression), parsed_expression(fault.expression)
    if isinstance(place, ast.Subscript) and isinstance(place.slice, ast.Constant):
        if anew := _tuple_anew(fault, place, move):
            draft.before(statement, anew)
            return True
        draft.before(statement, f"{stray.expression} = {stray.expression}{move}")
        return True
    owner = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    is_module = stray.held is not None and stray.held.how in ("parameter", "buffer")
    if owner and (stray.expression.startswith(f"{owner}.") or (is_module and owner.startswith("self."))):
        draft.before(statement, f"{owner}{move}")
        return True
    return False


def _tuple_anew(fault: Fault, place: ast.Subscript, move: str) -> str:
    """A tuple takes no item: `state = tuple(part.to(d) for part in state)`; "" for what is no tuple."""
    tuples = dict(each.split(":") for each in dict(fault.facts).get("tuples", "").split())
    name, index = ast.unparse(place.value), getattr(place.slice, "value", None)
    if name not in tuples or not isinstance(index, int):
        return ""
    if sum(o.stray and o.expression.startswith(f"{name}[") for o in fault.operands) == int(tuples[name]):
        return f"{name} = tuple(part{move} for part in {name})"
    return f"{name} = (*{name}[:{index}], {name}[{index}]{move}, *{name}[{index + 1}:])"


def _inline(draft: Draft, statement: ast.stmt, operand: Operand, move: str) -> bool:
    for text in (operand.source, operand.expression):
        nodes = [n for n in draft.code.alike(statement, text) if _is_read(n)] if text else []
        if nodes:
            for node in nodes:
                draft.append(node, move)
            return True
    return False


def _is_read(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _is_compound(statement: ast.stmt) -> bool:
    return bool(getattr(statement, "body", None) or getattr(statement, "cases", None))


def _is_local(code: Code, statement: ast.stmt, name: str) -> bool:
    """True for a variable or argument of the function that the statement stands in, or of the module for one there."""
    scope = code.scope(statement)
    if isinstance(scope, ast.Module):
        return True
    if isinstance(scope, ast.ClassDef):
        return False
    args = (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)
    if any(a.arg == name for a in args):
        return True
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) and code.scope(n) is scope
               for n in ast.walk(scope))  # fmt: skip


def from_helper(fault: Fault, stray: Operand) -> Fix | None:
    """`self.lstm(x, self.blank(n))`: what the helper returns is made without a device."""
    at, call = code_at(fault.site), parsed_expression(fault.expression)
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
    return fix("make it on the right device", draft)


def value_moved(stray: Operand, device: str, confidence: Confidence = "likely") -> Fix | None:
    """`x = f(...)` becomes `x = f(...).to(device)` where the line made a tensor and nothing else."""
    at = code_at(stray.birth)
    if at is None or not isinstance(at[1], ast.Assign | ast.AnnAssign) or at[1].value is None:
        return None
    (only, *more) = targets(at[1])
    value = at[1].value
    makes_more = isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.GeneratorExp)
    made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2][:1].isupper()
    holds = isinstance(value, ast.Call) and not stray.birth_call and stray.held is None  # `parts = build()`: an item of it
    if more or makes_more or made or holds or not isinstance(only, ast.Name | ast.Attribute):
        return None
    draft = Draft(at[0])
    draft.append(value, f".to({device})")
    return fix("move it where it is made", draft, confidence)


def attribute_lines(code: Code, owner: ast.ClassDef, attribute: str) -> Iterator[ast.stmt]:
    """The statements of a class that assign `self.attribute`."""
    for node in ast.walk(owner):
        if isinstance(node, ast.stmt) and any(is_self(target, attribute) for target in targets(node)):
            yield node
