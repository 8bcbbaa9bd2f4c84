"""needless-hop: a transfer that the program does not need.

Why: a copy between devices takes time, and a copy to the host also waits for the GPU.
Bad: `h.cpu().to('cuda:1')`; `self.scale.to(x.device)` at every call.
Good: `h.to('cuda:1')`; `self.register_buffer('scale', scale)`.
Source: https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html (avoid unnecessary CPU-GPU synchronisation).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Held, Trace, UserMove
from devwidget.rules import repeated_writes
from devwidget.rules.edits.attributes import register_attribute
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.moves_left_out import without_move
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
    yield from repeated_writes.fillings(trace.crossings)
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
        fixes=(repeated_writes.made_there(before), without_move(before.site, before.target, words), Fix(words)),
    )


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
