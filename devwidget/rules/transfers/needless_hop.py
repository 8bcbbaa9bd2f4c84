"""needless-hop: a transfer that the program does not need.

Why: a copy between devices takes time, and a copy to the host also waits for the GPU.
Bad: `h.cpu().to('cuda:1')`; `self.scale.to(x.device)` at every call.
Good: `h.to('cuda:1')`; `self.register_buffer('scale', scale)`.
Source: https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html (avoid unnecessary CPU-GPU synchronisation).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.syntax import arguments_in, calls_named, parsed_expression
from devwidget.records.trace import Fault, Held, Operand, Trace, UserMove
from devwidget.rules.edits.attributes import register_attribute
from devwidget.rules.edits.calls import FACTORIES
from devwidget.rules.edits.case import Case
from devwidget.rules.edits.devices import is_move
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.moves_where_made import create_there
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "needless-hop",
    "warning",
    needs=("operations",),
    why=Message("each transfer takes time on the bus, and one to the host also syncs with the GPU"),
    loses_to=("ping-pong",),
)
def check(trace: Trace) -> Iterator[Found]:
    """Round trips, detours, tensors copied at every call, and CPU tensors filled from a GPU."""
    yield from _find_fillings(trace.crossings)
    known = {crossing.number: crossing for crossing in trace.crossings}
    for crossing in trace.crossings:
        before = known.get(crossing.direct_from)
        if crossing.meant or (before is not None and before.meant):
            continue
        if before is not None and _in_one_step(before, crossing):
            yield _make_finding(before, crossing)
        elif crossing.held is not None and crossing.phase in ("forward", "loss") and crossing.target.is_accelerator:
            yield _every_time(crossing, crossing.held)


def _in_one_step(before: UserMove, last: UserMove) -> bool:
    """Whether both transfers belong to one step and neither restores weights or moves the batch to the model."""
    kept = any(each.into is not None and each.into.held is not None for each in (before, last))
    return not kept and before.step == last.step and "build" not in (before.phase, last.phase)


def _make_finding(before: UserMove, last: UserMove) -> Found:
    back, moved = before.source == last.target, min(before.bytes, last.bytes)  # only a part of the tensor may have been written
    if back:
        words = Message("stay on the device")
    else:
        verb = "cpu()" if before.target.kind == "cpu" else f"to({str(before.target)!r})"
        words = Message("copy directly, without .{verb}", verb=verb)
    path = Message("{first} to {second} to {third}", first=before.source, second=before.target, third=last.target)
    return Found(
        last,
        Message("{bytes} bytes are copied from {path} without being used in between", bytes=moved, path=path),
        birth=before.site,
        birth_moves=True,
        fixes=(mended(before.site, words, _leave_out, before.target), Fix(words)),
    )


def _leave_out(draft: Draft, statement: ast.stmt, target: DeviceId) -> None:
    """Leave out the move to a device; to one that has a name, the only such move of the line."""
    draft.leave_out(statement, target)
    if draft.changes:
        return
    moves = calls_named(draft.code.parts(statement), "to", target.kind)
    match [call for call in moves if _goes_to_a_name(call)]:
        case [ast.Call(func=ast.Attribute(value=moved)) as only]:
            draft.unwrap(only, moved)


def _goes_to_a_name(call: ast.Call) -> bool:
    """`x.to(HOST)`; `x.to("cpu")` names a device itself, and `x.to(torch.float16)` only casts."""
    return is_move(call) and not any(isinstance(each, ast.Constant) for each in arguments_in(call))


def _every_time(crossing: UserMove, held: Held) -> Found:
    owner: str = Message("the program")
    once = Message("move it once")
    fixes = [mended(held.assigned, Message("move it once"), _move_once, crossing)]
    if held.module is not None:
        owner = f"`{held.module}`" if held.module else Message("the model")
        once = Message("register it as a buffer, so that it moves only once, with the model")
        fixes = [register_attribute(held, dtype="")]
    facts = {"name": held.name, "bytes": crossing.bytes, "source": crossing.source, "target": crossing.target}
    return Found(
        crossing,
        Message("`{name}` ({bytes} bytes) is copied from {source} to {target} at every call", **facts),
        why=Message("{owner} stores it on {source}, and `Module.to` does not move it", owner=owner, source=crossing.source),
        birth=held.assigned,
        fixes=(*fixes, Fix(once)),
        severity="info" if crossing.is_index else "warning",  # torch copies indices implicitly
    )


def _move_once(draft: Draft, statement: ast.stmt, crossing: UserMove) -> None:
    if isinstance(statement, ast.Assign):
        draft.append(statement.value, f".to({str(crossing.target)!r})")


def _find_fillings(crossings: Iterable[UserMove]) -> Iterator[Found]:
    """Yield lines that fill a CPU tensor more than once in a step with values that receive gradients.

    Values collected without gradients are results. A tensor that outlives the step, or was created with `device="cpu"`, is on
    the CPU on purpose.
    """
    writes = Counter((crossing.site, crossing.step) for crossing in crossings if crossing.into is not None)
    lines: dict[object, UserMove] = {}
    for each in crossings:
        if writes[each.site, each.step] > 1 and _is_trained_through(each):
            lines.setdefault(each.site, each)
    yield from map(_make_fill_finding, lines.values())


def _is_trained_through(write: UserMove) -> bool:
    into = write.into
    if into is None or into.held is not None or not _made_without_device(into):
        return False
    if write.phase not in ("forward", "loss") or write.target.kind != "cpu":
        return False
    return write.trains and not write.meant


def _made_without_device(operand: Operand) -> bool:
    call = parsed_expression(operand.birth_call)
    if not isinstance(call, ast.Call) or not operand.birth_direct or operand.birth_op not in FACTORIES:
        return False
    return all(keyword.arg not in ("device", None) for keyword in call.keywords)


def _make_fill_finding(write: UserMove) -> Found:
    assert write.into is not None
    name = f"`{write.into.name}`" if write.into.name else Message("the tensor")
    facts = {"name": name, "target": write.target, "source": write.source, "bytes": write.bytes}
    return Found(
        write,
        Message(
            "{name} on {target} is filled from {source}, {bytes} bytes at a time, and gradients flow back through it", **facts
        ),
        why=Message("each write syncs with the GPU, and each gradient is copied back"),
        birth=write.into.birth,
        fixes=(_made_there(write), Fix(Message("create it on the device of the values that are written into it"))),
    )


def _made_there(write: UserMove) -> Fix | None:
    """Return the fix that creates the written tensor on the device of the values."""
    if write.into is None:
        return None
    fault = Fault(write.number, "operands", "__setitem__", write.module, write.phase, write.site, "", target=write.source)
    return create_there(Case(fault, write.into, literal=False))
