"""needless-hop: a crossing that could be avoided without changing the program's plan.

Why: a copy between devices costs time on the bus, and a copy to the host makes the GPU wait.
Bad: `h.cpu().to('cuda:1')`; `self.scale.to(x.device)` or `x[self.index]` at every call, with plain attributes on the CPU;
losses written one by one into `torch.empty(n)`, which is on the CPU; one tensor on the CPU written again and again into one
on a GPU; `torch.zeros(1, len(x), 64).to(x.device)` in `forward`; a prompt on the CPU given to
`model.generate`.
Good: `h.to('cuda:1')`; `self.register_buffer('scale', scale)`; `torch.empty(n, device=x.device)`; a move above the loop.
Source: https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html (avoid unnecessary CPU-GPU synchronisation).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Claim, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Held, Trace, UserMove
from devwidget.rules import generation_hops, made_on_host, writes
from devwidget.rules.claim_words import words_of
from devwidget.rules.registry import rule
from devwidget.rules.repairs.attributes import registered
from devwidget.rules.repairs.edits import Draft, chosen, mended
from devwidget.rules.repairs.moves_left_out import without_move


@rule("needless-hop", needs=("operations",), loses_to=("ping-pong",))
def check(trace: Trace) -> Iterator[Finding]:
    """Round trips, detours, what is copied or made anew at every call or turn, and tensors on the host filled from a GPU."""
    yield from writes.fillings(trace.crossings)
    yield from writes.repeated(trace.crossings)
    yield from made_on_host.find_remade(trace)
    yield from generation_hops.find_generations(trace)
    known = {crossing.number: crossing for crossing in trace.crossings}
    for crossing in trace.crossings:
        before = known.get(crossing.direct_from)
        if crossing.meant or (before is not None and before.meant):
            continue
        if before is not None and _in_one_step(before, crossing):
            yield _around(before, crossing)
        elif crossing.held is not None and crossing.phase in ("forward", "loss") and crossing.target.is_accelerator:
            yield _every_time(crossing, crossing.held)


def _in_one_step(before: UserMove, last: UserMove) -> bool:
    """False for an input that the loop moved to the model, whose first stage is on another GPU, and for weights put back."""
    kept = any(each.into is not None and each.into.held is not None for each in (before, last))
    return not kept and before.step == last.step and "build" not in (before.phase, last.phase)


def _around(before: UserMove, last: UserMove) -> Finding:
    back, moved = before.source == last.target, min(before.bytes, last.bytes)  # of a whole one part may have been written
    words = Message("stay on the device") if back else Message("copy directly, without .{verb}", verb=_verb(before))
    claim = Claim("crossed", devices=(before.source, before.target, last.target), bytes=moved, site=last.site)
    return Finding(
        kind="needless-hop",
        severity="warning",
        module=last.module,
        headline=words_of(claim),
        why=Message("each copy costs time on the bus, and one to the host makes the GPU wait"),
        fault=last.site,
        birth=before.site,
        fixes=chosen((writes.made_there(before), without_move(before.site, before.target, words), Fix(words))),
        explains=(),
        claims=(claim,),
    )


def _verb(crossing: UserMove) -> str:
    return "cpu()" if crossing.target.kind == "cpu" else f"to({str(crossing.target)!r})"


def _every_time(crossing: UserMove, held: Held) -> Finding:
    owner = f"`{held.module}`" if held.module else Message("the model") if held.module is not None else Message("the program")
    once = (
        Message("register it as a buffer, so that it moves once, with the model")
        if held.module is not None
        else Message("move it once")
    )
    fixes = list(registered(held, dtype="")) if held.module is not None else [_moved_once(crossing, held)]
    claim = Claim(
        "repeated", name=held.name, source=crossing.source, target=crossing.target, bytes=crossing.bytes, site=crossing.site
    )
    return Finding(
        kind="needless-hop",
        severity="info" if crossing.is_index else "warning",  # torch makes the copy without a word
        module=crossing.module,
        headline=words_of(claim),
        why=Message("{owner} keeps it on {source}, where `Module.to` does not reach it", owner=owner, source=crossing.source),
        fault=crossing.site,
        birth=held.assigned,
        fixes=chosen((*fixes, Fix(once))),
        claims=(claim,),
    )


def _moved_once(crossing: UserMove, held: Held) -> Fix | None:
    def change(draft: Draft, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            draft.append(statement.value, f".to({str(crossing.target)!r})")

    return mended(held.assigned, Message("move it once"), change)
