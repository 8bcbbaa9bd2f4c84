"""replica-state-lost: `forward` relies on state that a `DataParallel` replica loses or does not have.

Why: replicas are created at every call and discarded after it; their parameters are plain tensors.
Bad: `self.calls += 1` in `forward`; `next(self.parameters()).device`.
Good: a buffer, updated in place; `x.device`; `DistributedDataParallel`, which has no replicas.
Source: the warning in https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.fault_details import LostWrite, NoParameters
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import is_self_attribute
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


def _list_buffer_fixes(fault: Fault, name: str) -> Iterator[Fix | None]:
    yield mended(fault.site, Message("keep it in a buffer and update the buffer in place; the one on the first device is kept"),
                 lambda draft, statement: _in_buffer(draft, statement, name))  # fmt: skip
    buffer = f"self.register_buffer({name!r}, torch.zeros(()))  # in __init__; in forward: self.{name}.add_(1)"
    yield Fix(
        Message("keep it in a buffer and update the buffer in place; the one on the first device is kept"), buffer, "likely"
    )
    yield Fix(
        Message("return it from forward, update it in the training loop, or use DistributedDataParallel"),
        "",
        "choice",
    )


def _in_buffer(draft: Draft, statement: ast.stmt, name: str) -> None:
    """`self.calls = 0` in `__init__` and `self.calls += 1` in forward become a buffer and an in-place addition."""
    code = draft.code
    owner = code.owner(statement)
    if owner is not None:
        lines = [n for n in ast.walk(owner) if isinstance(n, ast.Assign)]
    else:
        lines = []
    begun = [n for n in lines if any(is_self_attribute(t, name) for t in n.targets) and isinstance(n.value, ast.Constant)]
    update = _update(code, statement, name)
    if not update or len(begun) != 1 or type(begun[0].value.value) not in (int, float):  # type: ignore[attr-defined]
        return
    draft.rewrite(begun[0], f"self.register_buffer({name!r}, torch.tensor({code.text(begun[0].value)}))")
    draft.rewrite(statement, f"self.{name}.{update}")
    if owner is not None:
        calls = [node for node in ast.walk(owner) if isinstance(node, ast.Call)]
    else:
        calls = []
    for call in calls:
        if call is not getattr(statement, "value", None) and ast.unparse(call.func) in ("min", "max") and len(call.args) == 2:
            _clamped(draft, call, name)


def _update(code: Code, statement: ast.stmt, name: str) -> str:
    """A statement's change to a number as an in-place method: `add_(1)`; `clamp_(min=n)` for `max(self.longest, n)`."""
    if isinstance(statement, ast.AugAssign):
        if isinstance(statement.op, ast.Add):
            return f"add_({code.text(statement.value)})"
        return ""
    value = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and is_self_attribute(value.left, name):
        return f"add_({code.text(value.right)})"
    if isinstance(value, ast.Call):
        bound = {"max": "min", "min": "max"}.get(ast.unparse(value.func), "")
    else:
        bound = ""
    if isinstance(value, ast.Call):
        others = [each for each in value.args if not is_self_attribute(each, name)]
    else:
        others = []
    alone = bound and isinstance(value, ast.Call) and len(value.args) == 2 and len(others) == 1 and not value.keywords
    if alone:
        return f"clamp_({bound}={code.text(others[0])})"
    return ""


def _clamped(draft: Draft, call: ast.Call, name: str) -> None:
    """`min(1.0, self.calls / n)` would sync with the GPU: `(self.calls / n).clamp(max=1.0)` does not."""
    number, other = sorted(call.args, key=lambda a: not isinstance(a, ast.Constant))
    uses = any(is_self_attribute(node, name) for node in ast.walk(other))
    if uses and isinstance(number, ast.Constant):
        bound = "max" if ast.unparse(call.func) == "min" else "min"
        draft.replace(call, f"({draft.code.text(other)}).clamp({bound}={draft.code.text(number)})")


def _looked_up(fault: Fault, name: str) -> Iterator[Fix | None]:
    yield mended(fault.site, Message("access a parameter by name"), lambda draft, statement: _by_name(draft, statement, name))
    yield Fix(Message("take the device from an input (x.device), or create the tensor with x.new_zeros(...)"), "", "likely")
    yield Fix(Message("take it from a parameter by name, such as self.<layer>.weight"), f"self.{name}.device", "choice")
    yield Fix(Message("use DistributedDataParallel, which does not create replicas in forward"), "", "choice")


def _by_name(draft: Draft, statement: ast.stmt, name: str) -> None:
    """`next(self.parameters())` becomes `self.layer.weight`, which a replica has too."""
    for node in draft.code.parts(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "next" and "parameters()" in ast.unparse(node):
            draft.replace(node, f"self.{name}")
