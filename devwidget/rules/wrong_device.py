"""wrong-device: an operation received tensors on devices that it cannot mix.

Why: a kernel runs on one device, and operands are not copied for you.
Bad: `h0 = torch.zeros(1, batch, width)` in a `forward` whose input is on a GPU.
Good: `h0 = torch.zeros(1, batch, width, device=x.device)`.
Source: `Expected all tensors to be on the same device`, TensorIterator and the device checks of native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule
from devwidget.rules._wording import described, devices_of, right_device, strays_in


@rule(
    "wrong-device",
    needs=("operations",),
    loses_to=("unregistered-tensor", "unassigned-move", "parallel-misplaced", "split-tied-weights", "meta-tensor"),
)
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each fault of operands; the registry folds equal causes."""
    for fault, stray in strays_in(trace, "operands"):
        yield _finding(fault, stray)


def _finding(fault: Fault, stray: Operand) -> Finding:
    return Finding(
        kind="wrong-device",
        severity="error",
        module=fault.module,
        headline=_headline(fault),
        why="a kernel runs on one device, and operands are not copied for you",
        fault=fault.site,
        birth=stray.birth,
        fixes=confirmed(_fixes(fault, stray), fault),
        notes=_notes(fault, stray),
        operands=described(fault.operands),
        explains=(fault.number,),
        cause=f"left behind: {stray.held.left_behind}" if stray.held and stray.held.left_behind is not None else "",
    )


def _headline(fault: Fault) -> str:
    if len({operand.device for operand in fault.operands}) < 2:  # the call itself demands another device
        return f"`{fault.call}` was given a tensor on {devices_of(fault)} where it needs one on {fault.target}"
    return f"`{fault.call}` was given tensors from {devices_of(fault)}"


def _notes(fault: Fault, stray: Operand) -> tuple[str, ...]:
    name = stray.expression or stray.argument
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        path = f"{stray.held.module}.{stray.held.name}".strip(".")
        where = f"`{path}` is on {stray.device}"
        if stray.held.left_behind == "":
            where = f"the whole model is on {stray.device}"
    elif stray.birth is not None:
        where = f"`{name}` was {'moved to' if stray.from_move else 'made on'} {stray.device}"
    else:
        where = f"`{name}` is on {stray.device}, and no line seen here put it there"
    return (f"{where}; the others are on {fault.target}",)


def _fixes(fault: Fault, stray: Operand) -> Iterator[Fix]:
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        yield from _move_the_module(fault, stray)
        return
    if stray.argument == "generator":
        yield Fix("make the generator on the device of the numbers", f"torch.Generator(device={str(fault.target)!r})", "sure")
        return
    if stray.birth_partner:
        yield from _at_birth(stray, f"{stray.birth_partner}.device", "sure")
    if stray.birth is None or stray.birth_partner:
        yield from _at_use(fault, stray)
        return
    name = "" if _repairs.is_container(stray.birth.text) else _repairs.assigned_name(stray.birth.text)
    if fault.module is not None and name and stray.birth.function != (fault.site.function if fault.site else ""):
        yield Fix(f"move `{name}` to the model's device before the call", f"{name} = {name}.to({str(fault.target)!r})", "sure")
    yield from _at_use(fault, stray)
    yield from _at_birth(stray, repr(str(fault.target)), "likely")


def _at_birth(stray: Operand, device: str, confidence: str) -> Iterator[Fix]:
    """Make the tensor on the right device, or move it as soon as it is made."""
    if stray.birth is None:
        return
    statement = stray.birth.text
    if stray.birth_direct:
        code = _repairs.with_device(statement, stray.birth_call, stray.birth_op, device)
        if code:
            yield Fix("make it on the right device", code, "sure" if confidence == "sure" else "likely")
            return
    code = _repairs.moved_value(statement, device)
    if code:
        yield Fix("move it where it is made", code)


def _at_use(fault: Fault, stray: Operand) -> Iterator[Fix]:
    """Move it just before the line that fails."""
    device = right_device(fault)
    move = ".cpu()" if device == "'cpu'" else f".to({device})"
    receiver = _repairs.receiver(fault.expression) if len(fault.operands) == 1 else ""
    name = stray.expression or receiver
    if name.isidentifier():
        yield Fix("move it before it is used", f"{name} = {name}{move}")
    elif name:
        code = _repairs.replaced(fault.site.text, name, f"{name}{move}") if fault.site else ""
        yield Fix("move it where it is used", code or f"{name}{move}")
    else:
        yield Fix(f"move the tensor to {fault.target} before `{fault.call}`", move, "likely")


def _move_the_module(fault: Fault, stray: Operand) -> Iterator[Fix]:
    """The stray is a parameter: its module, or the whole model, is not where its inputs are."""
    model, target = fault.model_name or "model", str(fault.target)
    yield Fix("move the model to its inputs' device, after its last layer is in place", f"{model}.to({target!r})")
    path = stray.held.left_behind if stray.held is not None else None
    if path:
        yield Fix("or move this module alone", f"{model}.get_submodule({path!r}).to({target!r})", "choice")
    other = next((o for o in fault.operands if not o.stray and o.expression), None)
    if other is not None:
        yield Fix(
            f"or keep the module on {stray.device} and move the data to it",
            f"{other.expression} = {other.expression}.to({str(stray.device)!r})",
            "choice",
        )
