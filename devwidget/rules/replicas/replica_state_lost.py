"""replica-state-lost: `forward` relies on state that a `DataParallel` replica loses, does not have, or shares.

Why: replicas are created at every call and discarded after it; their parameters are plain tensors.
Bad: `self.calls += 1` in `forward`; `next(self.parameters()).device`; `self.act = self._gelu` in `__init__`.
Good: a buffer, updated in place; `x.device`; `DistributedDataParallel`, which has no replicas.
Source: the warning in https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from devwidget.records.fault_details import CallsOriginal, LostWrite, NoParameters
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import assigns_self_attribute, is_self_attribute, name_of_called
from devwidget.records.trace import Fault, Trace
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.source_file import Code
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule("replica-state-lost", "error", needs=("replicas",))
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each attribute that is lost, and for each lookup that finds nothing."""
    for fault in trace.faults:
        match fault.detail:
            case LostWrite(name):
                yield _written(fault, name)
            case NoParameters(name):
                yield _without_parameters(fault, name)
            case CallsOriginal():
                yield _calls_original(fault, fault.detail)


def _without_parameters(fault: Fault, name: str) -> Found:
    return Found(
        fault,
        Message("`self.parameters()` is empty in a replica"),
        why=Message("a replica holds its parameters as plain tensors, so that gradients flow back through the copies"),
        fixes=_looked_up(fault, name),
        operands=(),
    )


def _written(fault: Fault, name: str) -> Found:
    return Found(
        fault,
        Message("`self.{name}` is set in a replica, and the new value is lost", name=name),
        why=Message("DataParallel creates new replicas at every call and discards them afterwards"),
        fixes=_list_buffer_fixes(fault, name),
        no_edit=Message("no edit: only a number that `__init__` sets and `forward` adds to can become a buffer"),
        operands=(),
    )


def _calls_original(fault: Fault, detail: CallsOriginal) -> Found:
    name = detail.attribute
    facts = {"name": f"self.{name}", "device": detail.device}
    if name.startswith("_") and name.endswith("_hooks"):
        facts["name"] = detail.function
    return Found(
        fault,
        Message("in a replica, `{name}` calls the original module, which is on {device}", **facts),
        why=Message(
            "replicas share the attributes of the original: a bound method, a closure or a list of modules stays bound to it"
        ),
        birth=fault.birth,
        fixes=_bound_to_the_replica(fault, name),
        operands=(),
        explains=detail.explains,
        cause=f"calls the original {name} {fault.birth}",
    )


def _bound_to_the_replica(fault: Fault, name: str) -> Iterator[Fix | None]:
    yield mended(fault.birth, Message("store the function without its module, and pass it the replica"), _unbound, name)
    if name == "forward":
        yield Fix(Message("put the wrapped model into a module that calls it, and leave its `forward`"))
    else:
        yield Fix(Message("look it up by name in `forward`, where `self` is the replica"), "getattr(self, name)")


def _unbound(draft: Draft, statement: ast.stmt, name: str) -> None:
    """`self.f = self._g` and `self.f(x)` become `self.f = type(self)._g` and `self.f(self, x)`, if the file only calls it."""
    code = draft.code
    owner, value = code.owner(statement), getattr(statement, "value", None)
    if owner is None or not isinstance(value, ast.expr) or not assigns_self_attribute(statement, name):
        return
    functions = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
    methods = {node.name for node in functions if not node.decorator_list}
    for function in _functions_of_value(value):
        match function:
            case ast.Lambda(args=ast.arguments(args=[first, *_])):
                draft.insert_in_front(first, "self, ")
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if attribute in methods:
                draft.replace(function, f"type(self).{attribute}")
            case _:
                draft.is_futile = True
    for node in ast.walk(code.tree):
        match node:
            case ast.Attribute(attr=attribute, ctx=ast.Load()) if attribute == name:
                if not _is_of_another(code, node, owner):
                    _pass_replica(draft, node)


def _functions_of_value(value: ast.expr) -> list[ast.expr]:
    """The functions that an expression may be: the branches of a conditional, the function of a `partial`."""
    match value:
        case ast.IfExp():
            return [*_functions_of_value(value.body), *_functions_of_value(value.orelse)]
        case ast.Call(args=[function, *_]) if name_of_called(value) == "partial":
            return _functions_of_value(function)
    return [value]


def _is_of_another(code: Code, node: ast.Attribute, owner: ast.ClassDef) -> bool:
    """Whether it is `self.act` in another class that assigns its own."""
    other = code.owner(node)
    if other is owner or other is None or not is_self_attribute(node):
        return False
    return any(assigns_self_attribute(each, node.attr) for each in ast.walk(other))


def _pass_replica(draft: Draft, node: ast.Attribute) -> None:
    call = draft.code.parents[node]
    if not is_self_attribute(node) or not isinstance(call, ast.Call) or call.func is not node:
        draft.is_futile = True
    elif call.args:
        draft.insert_in_front(call.args[0], "self, ")
    else:
        draft.is_futile = True


def _list_buffer_fixes(fault: Fault, name: str) -> Iterator[Fix | None]:
    words = Message("keep it in a buffer and update the buffer in place; the one on the first device is kept")
    buffer = f"self.register_buffer({name!r}, torch.zeros(()))  # in __init__; in forward: self.{name}.add_(1)"
    yield mended(fault.site, words, _in_buffer, name, instead=buffer)
    words = Message("return it from forward, update it in the training loop, or use DistributedDataParallel")
    yield Fix(words, confidence="choice")


def _in_buffer(draft: Draft, statement: ast.stmt, name: str) -> None:
    """`self.calls = 0` in `__init__` and `self.calls += 1` in forward become a buffer and an in-place addition."""
    code = draft.code
    owner, update = code.owner(statement), _update(code, statement, name)
    if owner is None or not update:
        return
    begun = [node for node in ast.walk(owner) if _sets_constant(node, name)]
    if len(begun) != 1 or not isinstance(begun[0].value, ast.Constant) or type(begun[0].value.value) not in (int, float):
        return
    draft.rewrite(begun[0], f"self.register_buffer({name!r}, torch.tensor({code.text(begun[0].value)}))")
    draft.rewrite(statement, f"self.{name}.{update}")
    for node in ast.walk(owner):
        if node is not getattr(statement, "value", None):
            _clamp(draft, node, name)


def _sets_constant(node: ast.AST, name: str) -> TypeGuard[ast.Assign]:
    """`self.calls = 0`."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and assigns_self_attribute(node, name)


def _update(code: Code, statement: ast.stmt, name: str) -> str:
    """A statement's change to a number as an in-place method: `add_(1)`; `clamp_(min=n)` for `max(self.longest, n)`."""
    match statement:
        case ast.AugAssign(op=ast.Add(), value=added):
            return f"add_({code.text(added)})"
        case ast.Assign(targets=[_], value=ast.BinOp(op=ast.Add(), left=left, right=added)) if is_self_attribute(left, name):
            return f"add_({code.text(added)})"
        case ast.Assign(
            targets=[_], value=ast.Call(func=ast.Name(id="max" | "min" as choice), args=[_, _] as values, keywords=[])
        ):
            others = [each for each in values if not is_self_attribute(each, name)]
            if len(others) == 1:
                return f"clamp_({_BOUNDS[choice]}={code.text(others[0])})"
    return ""


_BOUNDS = {"max": "min", "min": "max"}
"""Function of Python -> the bound of `clamp` that does the same."""


def _clamp(draft: Draft, node: ast.AST, name: str) -> None:
    """`min(1.0, self.calls / n)` would sync with the GPU: `(self.calls / n).clamp(max=1.0)` does not."""
    match node:
        case ast.Call(func=ast.Name(id="max" | "min" as choice), args=[ast.Constant() as number, other]):
            pass
        case ast.Call(func=ast.Name(id="max" | "min" as choice), args=[other, ast.Constant() as number]):
            pass
        case _:
            return
    if any(is_self_attribute(part, name) for part in ast.walk(other)):
        draft.replace(node, f"({draft.code.text(other)}).clamp({_BOUNDS[choice]}={draft.code.text(number)})")


def _looked_up(fault: Fault, name: str) -> Iterator[Fix | None]:
    yield mended(fault.site, Message("access a parameter by name"), _by_name, name)
    yield Fix(Message("take the device from an input (x.device), or create the tensor with x.new_zeros(...)"))
    yield Fix(Message("use DistributedDataParallel, whose processes each keep their model and outputs"), confidence="choice")


def _by_name(draft: Draft, statement: ast.stmt, name: str) -> None:
    """`next(self.parameters())` becomes `self.layer.weight`, which a replica has too."""
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "next" and "parameters()" in ast.unparse(node):
            draft.replace(node, f"self.{name}")
