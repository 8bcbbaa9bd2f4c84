"""Edits about dtypes: casts, autocast regions, and what must not run in them."""

from __future__ import annotations

import ast

from devwidget.records.fault_details import AutocastRegion
from devwidget.records.finding import Fix
from devwidget.records.site import Site
from devwidget.records.syntax import arguments_in, calls_named, own_lines, parsed_expression
from devwidget.records.trace import Fault, Operand
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import Code, code_at, code_of_site, has_torch, names_in

LOW = "float16", "bfloat16"
_CASTS = frozenset({"half", "bfloat16"})
_LOW_DTYPES = frozenset({"torch.float16", "torch.half", "torch.bfloat16"})


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


def without_cast(fault: Fault, summary: str) -> Fix | None:
    """Drop the cast to low precision of a variable that only the failing line reads: `angles = table.to(dtype)`."""
    births = {operand.birth for operand in fault.operands if operand.stray}
    birth = next(iter(births), None)
    if len(births) != 1 or birth is None or fault.site is None:
        return None
    code = code_of_site(birth)
    statement = code.statement(birth.line) if code is not None else None
    if code is None or birth.file != fault.site.file or not isinstance(statement, ast.Assign):
        return None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as cast) if _is_cast(cast):
            if _is_read_alone(fault, name) and _is_read_only_at(code, statement, name, fault.site.line):
                draft = Draft(code)
                draft.drop_method(cast)
                return fix(summary, draft)
    return None


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


def _is_read_alone(fault: Fault, name: str) -> bool:
    """Whether the operands are computed of one variable: another one may have been cast to go with it."""
    nodes = [parsed_expression(operand.source) for operand in fault.operands if operand.stray and operand.source]
    return all(each.id in (name, "torch") for node in nodes if node is not None for each in names_in(node))


def _is_read_only_at(code: Code, statement: ast.stmt, name: str, line: int) -> bool:
    """Whether the function around an assignment reads the variable only in the statement at another line."""
    scope, reader = code.scope(statement), code.statement(line)
    if reader is None or code.scope(reader) is not scope or isinstance(scope, ast.Module):
        return False
    lines = own_lines(reader)
    reads = [node for node in names_in(scope) if node.id == name and isinstance(node.ctx, ast.Load)]
    return all(node.lineno in lines or node in [*ast.walk(statement)] for node in reads)
