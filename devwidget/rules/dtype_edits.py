"""Edits about dtypes: casts, autocast regions, and what must not run in them."""

from __future__ import annotations

import ast

from devwidget.records.finding import Fix
from devwidget.records.site import Site
from devwidget.records.syntax import calls_named, parsed_expression
from devwidget.records.trace import Fault
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import code_at, has_torch, names_in

LOW = "float16", "bfloat16"
_CASTS = frozenset({"half", "bfloat16"})
_LOW_DTYPES = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})


def with_autocast_in_backward(backward: Site, device: str, summary: str) -> Fix | None:
    """`custom_fwd` and `custom_bwd` above `forward` and `backward` of an `autograd.Function` whose forward gets the context."""
    found = code_at(backward)
    owner = found[0].owner(found[1]) if found is not None else None
    if found is None or owner is None or not has_torch(found[0]):
        return None
    methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
    if not {"forward", "backward"} <= methods.keys() or "setup_context" in methods:
        return None
    draft = Draft(found[0])
    for name, decorator in (("forward", "custom_fwd"), ("backward", "custom_bwd")):
        draft.decorate(methods[name], f'@torch.amp.{decorator}(device_type="{device}")')
    return fix(summary, draft)


def float_parameters(optimizer: Site | None, summary: str) -> Fix | None:
    """Cast the parameters of an optimizer to float32, below the line that creates it."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
                name = draft.code.text(target)
                draft.insert_below(
                    statement,
                    f"for group in {name}.param_groups:\n"
                    '    for parameter in group["params"]:\n'
                    "        parameter.data = parameter.data.float()",
                )

    return mended(optimizer, summary, change)


def loss_of_logits(fault: Fault, summary: str) -> Fix | None:
    """Take out the only sigmoid of the file, and use the loss that computes it: `BCELoss` becomes `BCEWithLogitsLoss`."""
    return mended(fault.site, summary, _use_logits)


def _use_logits(draft: Draft, statement: ast.stmt) -> None:
    nodes = [*ast.walk(draft.code.tree)]
    losses = list(calls_named(draft.code.parts(statement), "binary_cross_entropy")) or list(calls_named(nodes, "BCELoss"))
    match list(calls_named(nodes, "sigmoid", "Sigmoid")), losses:
        case [sigmoid], [loss]:
            _leave_out(draft, sigmoid)
            called = draft.code.text(loss.func)
            if called.endswith("BCELoss"):
                draft.replace(loss.func, f"{called.removesuffix('BCELoss')}BCEWithLogitsLoss")
            else:
                draft.replace(loss.func, f"{called}_with_logits")


def _leave_out(draft: Draft, sigmoid: ast.Call) -> None:
    """`torch.sigmoid(x)` and `x.sigmoid()` become `x`, the layer `nn.Sigmoid()` becomes `nn.Identity()`."""
    called = draft.code.text(sigmoid.func)
    if called.endswith("Sigmoid"):
        draft.replace(sigmoid.func, f"{called.removesuffix('Sigmoid')}Identity")
    elif sigmoid.args:
        draft.unwrap(sigmoid, sigmoid.args[0])
    else:
        draft.drop_method(sigmoid)


def without_cast(fault: Fault, summary: str) -> Fix | None:
    """Drop the cast to low precision of a variable that only the failing line reads: `angles = table.to(dtype)`."""
    births = {operand.birth for operand in fault.operands if operand.stray}
    at, use = code_at(next(iter(births), None)), code_at(fault.site)
    if len(births) != 1 or at is None or use is None:
        return None
    code, statement = at
    scope = code.scope(statement)
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as cast) if _is_cast(cast):
            reads = [node for node in names_in(scope) if node.id == name and isinstance(node.ctx, ast.Load)]
            readers = {code.statement_of(node) for node in reads} - {statement}
            is_of_function = code.scope(use[1]) is scope and not isinstance(scope, ast.Module)
            if is_of_function and readers == {use[1]} and _is_read_alone(fault, name):
                draft = Draft(code)
                draft.drop_method(cast)
                return fix(summary, draft)
    return None


def _is_read_alone(fault: Fault, name: str) -> bool:
    """Whether the operands are computed of one variable: another one may have been cast to go with it."""
    nodes = [parsed_expression(operand.source) for operand in fault.operands if operand.stray and operand.source]
    return all(each.id in (name, "torch") for node in nodes if node is not None for each in names_in(node))


def _is_cast(call: ast.Call) -> bool:
    """Whether a call casts to low precision, or to a dtype in a variable, and does nothing else."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]):
            return name in _CASTS
        case ast.Call(func=ast.Attribute(attr="to" | "type"), args=[dtype], keywords=[]):
            text = ast.unparse(dtype)
        case ast.Call(func=ast.Attribute(attr="to"), args=[], keywords=[ast.keyword(arg="dtype", value=dtype)]):
            text = ast.unparse(dtype)
        case _:
            return False
    return text in _LOW_DTYPES or text.rpartition(".")[2].endswith("dtype")
