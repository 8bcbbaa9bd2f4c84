"""wrong-device: an operation received tensors on devices that it cannot mix.

Why: a kernel runs on one device, and operands are not copied for you.
Bad: `h0 = torch.zeros(1, batch, width)` in a `forward` whose input is on a GPU.
Good: `h0 = torch.zeros(1, batch, width, device=x.device)`.
Source: `Expected all tensors to be on the same device`, TensorIterator and the device checks of native_functions.yaml.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Fault, Operand, Trace
from devwidget.rules.findings import finding_of
from devwidget.rules.registry import rule
from devwidget.rules.repairs.code import code_at
from devwidget.rules.repairs.edits import Draft, fix
from devwidget.rules.repairs.modules import where_built
from devwidget.rules.repairs.moves_on_entry import on_entry
from devwidget.rules.repairs.moves_where_made import from_helper, value_moved, where_made
from devwidget.rules.repairs.moves_where_used import where_used
from devwidget.rules.wording import devices_of, one_target, right_device, strays_in


@rule(
    "wrong-device",
    needs=("operations",),
    loses_to=("unregistered-tensor", "unassigned-move", "parallel-misplaced", "split-tied-weights", "meta-tensor"),
)
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each fault of operands; the registry folds equal causes."""
    for fault, stray in strays_in(trace, "operands"):
        yield _finding(fault, stray, literal=one_target(trace, fault, stray))


def _finding(fault: Fault, stray: Operand, *, literal: bool) -> Finding:
    return finding_of(
        fault,
        "wrong-device",
        headline=_headline(fault),
        why=_why(fault),
        birth=stray.birth,
        fixes=_fixes(fault, stray, literal=literal),
        notes=_notes(fault, stray),
        cause=f"left behind: {stray.held.left_behind}" if stray.held and stray.held.left_behind is not None else "",
    )


def _headline(fault: Fault) -> str:
    if _alone(fault):
        return Message(
            "`{call}` was given a tensor on {devices} where it needs one on {target}",
            call=fault.call,
            devices=devices_of(fault),
            target=fault.target,
        )
    return Message("`{call}` was given tensors from {devices}", call=fault.call, devices=devices_of(fault))


def _alone(fault: Fault) -> bool:
    """Whether none of the tensors of the call, as far as they are known, is where it needs them."""
    return all(operand.device != fault.target for operand in fault.operands)


def _demands(fault: Fault) -> bool:
    """Whether the call itself wants that device: torch speaks of no others, which may be gone since."""
    return _alone(fault) and "Expected all tensors" not in fault.error


def _why(fault: Fault) -> str:
    if _demands(fault):
        return Message(
            "`{call}` works with it on {target} alone, and it is not copied for you", call=fault.call, target=fault.target
        )
    return Message("a kernel runs on one device, and operands are not copied for you")


def _notes(fault: Fault, stray: Operand) -> tuple[str, ...]:
    name = stray.name
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        path = f"{stray.held.module}.{stray.held.name}".strip(".")
        where = Message("`{path}` is on {device}", path=path, device=stray.device)
        if stray.held.left_behind == "":
            where = Message("the whole model is on {device}", device=stray.device)
    elif stray.birth is not None:
        moved = Message("`{name}` was moved to {device}", name=name, device=stray.device)
        where = moved if stray.from_move else Message("`{name}` was made on {device}", name=name, device=stray.device)
    elif stray.field:
        where = Message("`{name}` is on {device}, and comes from the {field}", name=name, device=stray.device,
                        field=Message(stray.field))  # fmt: skip
    else:
        where = Message("`{name}` is on {device}, and no line seen here put it there", name=name, device=stray.device)
    return (where if _demands(fault) else Message("{where}; the others are on {target}", where=where, target=fault.target),)


def _fixes(fault: Fault, stray: Operand, *, literal: bool) -> Iterator[Fix | None]:
    if stray.held is not None and stray.held.how in ("parameter", "buffer"):
        yield from _move_the_module(fault, stray, literal=literal)
        return
    if stray.argument == "generator":
        yield _generator(fault, stray)
        yield Fix(
            Message("make the generator on the device of the numbers"), f"torch.Generator(device={str(fault.target)!r})", "sure"
        )
        return
    use = where_used(fault, [o for o in fault.operands if o.stray], literal=literal)
    made = None if stray.from_move else where_made(fault, stray, literal=literal)
    yield made if str(fault.target) != "cpu" else None
    yield use
    yield on_entry(fault, stray)
    yield from_helper(fault, stray) if stray.birth is None else None
    if literal and not _same_line(stray.birth, fault.site):  # moved there it would come too late
        yield value_moved(stray, repr(str(fault.target)))
    device = right_device(fault)
    name = stray.expression or stray.source
    told = Message(
        "move `{name}` to the device of the others before `{call}`", name=name or Message("the tensor"), call=fault.call
    )
    yield Fix(told, f"{name}.to({device})" if name else "")


def _same_line(birth: Site | None, fault: Site | None) -> bool:
    return birth is not None and fault is not None and (birth.file, birth.line) == (fault.file, fault.line)


def _generator(fault: Fault, stray: Operand) -> Fix | None:
    """`torch.Generator()` on the line that made it, with the device of the numbers."""
    at = code_at(stray.birth)
    if at is None:
        return None
    draft = Draft(at[0])
    for node in at[0].parts(at[1]):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Generator"):
            draft.keyword(node, "device", repr(str(fault.target)))
    return fix(Message("make the generator on the device of the numbers"), draft, "sure")


def _move_the_module(fault: Fault, stray: Operand, *, literal: bool) -> Iterator[Fix | None]:
    """The stray is a parameter: its module, or the whole model, is not where its inputs are."""
    held, model, target = stray.held, fault.model_name or "model", str(fault.target)
    use = [o for o in fault.operands if o.stray]
    if held is not None and held.left_behind is None:  # its module is elsewhere, this one alone is not
        yield where_used(fault, use, literal=literal)
        yield where_made(fault, stray, literal=literal)
        return
    if stray.device.is_accelerator and fault.target is not None and fault.target.is_accelerator:
        yield where_used(fault, use, literal=literal)  # a model that is split on purpose
    if held is not None and literal:
        yield where_made(fault, stray, literal=True) if held.how == "buffer" else None
        yield from where_built(fault, stray, held)
    if not stray.expression.isidentifier():  # what `forward` calls by one name is not the parameter itself
        yield where_used(fault, use, literal=literal)
    yield Fix(Message("move the model to its inputs' device, after its last layer is in place"), f"{model}.to({target!r})")
    path = held.left_behind if held is not None else None
    if path == "" and literal:
        yield Fix(Message("or move the model that is there now"), f"{model}.to({target!r})", "choice")
    if path:
        yield Fix(Message("or move this module alone"), f"{model}.get_submodule({path!r}).to({target!r})", "choice")
    other = next((o for o in fault.operands if not o.stray and o.expression.isidentifier()), None)
    if other is not None:
        yield Fix(
            Message("or keep the module on {device} and move the data to it", device=stray.device),
            f"{other.expression} = {other.expression}.to({str(stray.device)!r})",
            "choice",
        )
