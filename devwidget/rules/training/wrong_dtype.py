"""wrong-dtype: an operator got floating-point dtypes that it does not mix.

Why: matrix products, convolutions and recurrent layers need one dtype; element-wise operators promote.
Bad: `model(torch.from_numpy(array))` with a float64 array and a float32 model.
Good: `model(torch.from_numpy(array).float())`.
Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html (type promotion).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.fault_details import AutocastRegion, HalfGradients, UnsafeLoss, WrongDtype
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, listed
from devwidget.records.site import Site
from devwidget.records.syntax import calls_named, targets_of
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.call_edits import LOW, replace_literal
from devwidget.rules.edits.calls import FACTORIES
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.moves_where_used import cast_where_used
from devwidget.rules.edits.source_file import code_at, has_torch
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.wording import name_of, path_of, some_names, strays_in

_CASTS = {"float32": ".float()", "int64": ".long()", "bool": ".bool()"}
_EXACT = frozenset({"int64", "bool"})
"""Dtypes of indices, class targets and masks."""

_CAST_METHODS = frozenset("byte char short int long half float double bfloat16 bool to type type_as".split())


@rule(
    "wrong-dtype",
    "error",
    needs=("operations",),
    why=Message("this op requires one floating-point dtype; PyTorch does not cast its inputs"),
    loses_to=("unassigned-move",),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each op with mixed floating-point dtypes."""
    for fault, stray in strays_in(trace, "dtype"):
        yield _make_finding(fault, stray)
    roots: dict[str, str] = {}
    for fault, stray in strays_in(trace, "promotion"):  # after the errors, so that an error with the same birth covers both
        born, failed = _line_id(stray.birth), _line_id(fault.site)
        cause = roots.get(born) or born or failed
        roots.setdefault(failed, cause)  # what this op has widened has the same cause
        yield _promotion(fault, stray, cause)


def _line_id(site: Site | None) -> str:
    if site is None:
        return ""
    return site.line_id


def _promotion(fault: Fault, stray: Operand, cause: str) -> Found:
    facts = {"name": name_of(fault, stray), "dtype": stray.dtype, "call": fault.call, "wanted": stray.dtype}
    return Found(
        fault,
        Message("{name} is {dtype} and makes the result of `{call}` {wanted}", **facts),
        why=Message("element-wise ops promote to the wider dtype, which is slow on most GPUs and spreads to later ops"),
        birth=stray.birth,
        fixes=_list_fixes(fault, stray),
        cause=cause,
        severity="warning",
    )


def _constant(fault: Fault, stray: Operand) -> Found:
    limits = f"torch.finfo({stray.expression or 'x'}.dtype)"
    return Found(
        fault,
        Message("`{call}` got a number that {dtype} cannot represent", call=fault.call, dtype=stray.dtype),
        why=Message("the largest half-precision number is 65504; masks written for float32 use larger numbers"),
        birth=stray.birth or fault.site,
        fixes=[
            mended(
                fault.site, Message("use the limit of the dtype"), _use_limit, fault.expression, limits, instead=f"{limits}.min"
            )
        ],
        operands=[stray],
    )


def _index(fault: Fault, stray: Operand, detail: WrongDtype) -> Found:
    facts = {"call": fault.call, "dtype": stray.dtype, "name": name_of(fault, stray), "wanted": detail.wanted}
    return Found(
        fault,
        Message("`{call}` got {name} of {dtype}, and requires {wanted}", **facts),
        why=Message("indices and class targets must be int64, and masks bool; PyTorch does not cast them"),
        birth=stray.birth,
        fixes=() if detail.has_gradient else _list_fixes(fault, stray),
    )


def _half_gradients(fault: Fault, stray: Operand, detail: HalfGradients) -> Found:
    keep = Message("keep the parameters in float32; `torch.autocast` casts them in forward")
    name = path_of(stray) or stray.expression
    names = some_names([name], detail.count) if name else str(detail.count)
    edit = _float_parameters(detail.optimizer, keep) if detail.autocast is not None else None
    return Found(
        fault,
        Message("GradScaler got float16 gradients"),
        why=Message("GradScaler unscales gradients of float32 parameters; a float16 parameter has a float16 gradient"),
        birth=stray.birth,
        fixes=(edit, Fix(keep)),
        notes=(Message("float16 gradients: {names}", names=names),),
    )


def _unsafe_loss(fault: Fault, detail: UnsafeLoss) -> Found:
    logits = Message("return logits, without the sigmoid, and take the loss that has the sigmoid in it")
    notes = []
    if detail.autocast is not None:
        notes.append(Message("autocast begins at {place}", place=str(detail.autocast.site)))
    return Found(
        fault,
        Message("`{call}` runs in an autocast region", call=fault.call),
        why=Message("its gradient may not fit into float16, so autocast refuses it"),
        fixes=(_loss_of_logits(fault, logits) if detail.is_sigmoid else None, Fix(logits, "BCEWithLogitsLoss")),
        notes=notes,
    )


def _make_finding(fault: Fault, stray: Operand) -> Found:
    match fault.detail:
        case WrongDtype(is_constant=True):
            return _constant(fault, stray)
        case HalfGradients() as detail:
            return _half_gradients(fault, stray, detail)
        case UnsafeLoss() as detail:
            return _unsafe_loss(fault, detail)
        case WrongDtype() as detail if detail.wanted in _EXACT:
            return _index(fault, stray, detail)
    strays = {operand.dtype for operand in fault.operands if operand.stray}
    floats = {operand.dtype for operand in fault.operands if "float" in operand.dtype}
    types = tuple(sorted(strays | floats | {_wanted_by(fault)}))
    return Found(
        fault,
        Message("`{call}` got {types} tensors", call=fault.call, types=listed(types)),
        birth=stray.birth,
        fixes=_list_fixes(fault, stray),
        notes=(*_notes(fault, stray), *_notes_on_autocast(fault)),
        cause=_line_id(fault.detail.backward) if isinstance(fault.detail, WrongDtype) else "",
    )


def _wanted_by(fault: Fault) -> str:
    """The dtype of the other tensors."""
    if isinstance(fault.detail, WrongDtype):
        return fault.detail.wanted
    return ""


def _notes(fault: Fault, stray: Operand) -> tuple[Message, ...]:
    """Which tensor has another dtype, and why."""
    name, dtype = name_of(fault, stray), stray.dtype
    typed = Message("{name} is {dtype}; the others are {wanted}", name=name, dtype=dtype, wanted=_wanted_by(fault))
    since = stray.promotion
    if stray.from_move and stray.birth is not None:
        return typed, Message("{name} was cast to {dtype}", name=name, dtype=dtype)
    if since is None:
        return (typed,)
    facts = {"name": name, "dtype": dtype, "call": since.call, "wanted": since.dtype}
    return typed, Message("{name} is {dtype} because of `{call}`, which got {wanted}", **facts)


def _notes_on_autocast(fault: Fault) -> Iterator[Message]:
    """Which autocast region made the dtypes differ."""
    detail = fault.detail
    if not isinstance(detail, WrongDtype) or detail.autocast is None:
        return
    region = detail.autocast
    if _is_for_another_device(fault, region):
        yield Message(
            "the autocast region at {place} casts only on {device}; these tensors are on {target}",
            place=str(region.site),
            device=region.device,
            target=str(fault.target),
        )
        return
    low = next((operand for operand in fault.operands if operand.dtype in LOW), None)
    if detail.backward is not None:
        yield Message("autocast at {place} casts in forward; backward runs without it", place=str(region.site))
    elif low is not None:
        facts = {"place": str(region.site), "name": name_of(fault, low), "dtype": low.dtype}
        yield Message("autocast at {place} made {name} {dtype}", **facts)


def _is_for_another_device(fault: Fault, region: AutocastRegion) -> bool:
    return bool(region.device) and fault.target is not None and region.device != fault.target.kind


def _fix_autocast(fault: Fault) -> Fix | None:
    """The edit of the region, or of the hand-written function in it."""
    detail = fault.detail
    if not isinstance(detail, WrongDtype) or detail.autocast is None or fault.target is None:
        return None
    device = fault.target.kind
    if _is_for_another_device(fault, detail.autocast):
        words = Message("cast on {device}", device=device)
        return mended(detail.autocast.site, words, replace_literal, detail.autocast.device, repr(device))
    if detail.backward is not None:
        return _with_autocast_in_backward(detail.backward, device, Message("run backward as autocast runs forward"))
    return None


def _list_fixes(fault: Fault, stray: Operand) -> Iterator[Fix | None]:
    wanted = _wanted_by(fault)
    yield _fix_autocast(fault)
    cast = _CASTS.get(wanted, f".to(torch.{wanted})")
    if stray.birth_direct or stray.birth_op in ("from_numpy", "load"):
        yield mended(stray.birth, Message("make it {wanted}", wanted=wanted), _cast_where_made, stray, wanted, cast)
    elif stray.held is not None and stray.held.how == "buffer":
        yield mended(stray.birth, Message("make it {wanted}", wanted=wanted), _cast_registration, cast)
    words = Message("cast it to {wanted} where it is used", wanted=wanted)
    is_index = wanted in _EXACT  # other lines may need it as it is
    yield cast_where_used(fault, [o for o in fault.operands if o.stray], cast, words, is_inline=is_index)
    name = stray.expression or stray.source
    yield Fix(words, f"{name}{cast}" if name else "")


def _cast_where_made(draft: Draft, statement: ast.stmt, stray: Operand, wanted: str, cast: str) -> None:
    for call in draft.code.alike(statement, stray.birth_call):
        if stray.birth_op in FACTORIES and isinstance(call, ast.Call):
            if not _is_cast_after(draft, call) and _is_all(draft, statement, call, stray, wanted):
                draft.keyword(call, "dtype", f"torch.{wanted}")
        elif not stray.from_move:
            draft.append(call, cast)


def _is_cast_after(draft: Draft, call: ast.Call) -> bool:
    """Whether a method of the new tensor casts it: `torch.zeros(3).byte()`."""
    method = draft.code.parents.get(call)
    return isinstance(method, ast.Attribute) and method.attr in _CAST_METHODS


def _is_all(draft: Draft, statement: ast.stmt, call: ast.Call, stray: Operand, wanted: str) -> bool:
    """Whether the new dtype reaches only the failing op; many ops do not support half precision."""
    made = list(calls_named(draft.code.parts(statement), *FACTORIES))
    if wanted in ("float32", "float64"):
        return len(made) == 1
    whole = isinstance(statement, ast.Assign) and statement.value is call
    return whole and [ast.unparse(each) for each in targets_of(statement)] == [stray.expression]


def _cast_registration(draft: Draft, statement: ast.stmt, cast: str) -> None:
    """`self.register_buffer('angles', table)` gets another dtype."""
    for call in calls_named(draft.code.parts(statement), "register_buffer"):
        if len(call.args) > 1:
            draft.append(call.args[1], cast)


def _use_limit(draft: Draft, statement: ast.stmt, expression: str, limits: str) -> None:
    """Replace the number in a call by the limit of the dtype."""
    for call in draft.code.calls(statement, expression):
        for argument in call.args:
            match argument:
                case ast.UnaryOp(op=ast.USub()):
                    draft.replace(argument, f"{limits}.min")
                case ast.Constant():
                    draft.replace(argument, f"{limits}.max")


def _with_autocast_in_backward(backward: Site, device: str, summary: str) -> Fix | None:
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


def _float_parameters(optimizer: Site | None, summary: str) -> Fix | None:
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


def _loss_of_logits(fault: Fault, summary: str) -> Fix | None:
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
