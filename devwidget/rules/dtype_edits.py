"""Edits about dtypes: casts, autocast regions, and what must not run in them."""

from __future__ import annotations

import ast

from devwidget.records.fault_details import AutocastRegion
from devwidget.records.finding import Fix
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, calls_named
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import code_at, has_torch

LOW = "float16", "bfloat16"


def autocast_for(region: AutocastRegion, device: str, summary: str) -> Fix | None:
    """`torch.autocast("cpu")` becomes `torch.autocast("cuda")`."""

    def change(draft: Draft, statement: ast.stmt) -> None:
        for node in draft.code.parts(statement):
            if isinstance(node, ast.Constant) and node.value == region.device:
                draft.replace(node, repr(device))

    return mended(region.site, summary, change)


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


def cast_argument(fault: Fault, stray: Operand, cast: str, summary: str) -> Fix | None:
    """Cast the argument of the failing call, or the index, that is an operand or is computed from it: `(1 - mask).bool()`."""
    texts = (stray.source, stray.expression)

    def change(draft: Draft, statement: ast.stmt) -> None:
        for node in draft.code.alike(statement, fault.expression):
            parts = _parts_of(node)
            named = [part for part in parts if ast.unparse(part) in texts]
            for part in named or [part for part in parts if _has_text(part, texts)][:1]:
                draft.append(part, cast)

    return mended(fault.site, summary, change)


def _parts_of(node: ast.expr) -> list[ast.expr]:
    """The arguments of a call, the indices of a subscript."""
    match node:
        case ast.Call():
            return arguments_in(node)
        case ast.Subscript(slice=ast.Tuple(elts=parts)):
            return parts
        case ast.Subscript(slice=part):
            return [part]
    return []


def _has_text(node: ast.expr, texts: tuple[str, ...]) -> bool:
    return any(isinstance(each, ast.expr) and ast.unparse(each) in texts for each in ast.walk(node))


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
