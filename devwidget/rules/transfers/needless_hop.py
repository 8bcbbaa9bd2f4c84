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
import dataclasses
from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Held, Move, Trace, UserMove
from devwidget.rules import made_on_host, repeated_writes
from devwidget.rules.edits.attributes import register_attribute
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.edits.moves_left_out import without_move
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "needless-hop",
    "warning",
    needs=("operations",),
    why=Message("each copy costs time on the bus, and one to the host makes the GPU wait"),
    loses_to=("ping-pong",),
)
def check(trace: Trace) -> Iterator[Found]:
    """Round trips, detours, what is copied or made anew at every call or turn, and tensors on the host filled from a GPU."""
    yield from repeated_writes.fillings(trace.crossings)
    yield from repeated_writes.repeated(trace.crossings)
    yield from made_on_host.find_remade(trace)
    yield from find_generations(trace)
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
    """False for an input that the loop moved to the model, whose first stage is on another GPU, and for weights put back."""
    kept = any(each.into is not None and each.into.held is not None for each in (before, last))
    return not kept and before.step == last.step and "build" not in (before.phase, last.phase)


def _make_finding(before: UserMove, last: UserMove) -> Found:
    back, moved = before.source == last.target, min(before.bytes, last.bytes)  # of a whole one part may have been written
    if back:
        words = Message("stay on the device")
    else:
        words = Message("copy directly, without .{verb}", verb=_verb(before))
    path = Message("{first} to {second} to {third}", first=before.source, second=before.target, third=last.target)
    return Found(
        last,
        Message("{bytes} bytes go from {path}, and nothing is computed on the way", bytes=moved, path=path),
        birth=before.site,
        fixes=(repeated_writes.made_there(before), without_move(before.site, before.target, words), Fix(words)),
    )


def _verb(crossing: UserMove) -> str:
    if crossing.target.kind == "cpu":
        return "cpu()"
    return f"to({str(crossing.target)!r})"


def _every_time(crossing: UserMove, held: Held) -> Found:
    if held.module:
        owner = f"`{held.module}`"
    elif held.module is not None:
        owner = Message("the model")
    else:
        owner = Message("the program")
    if held.module is not None:
        once = Message("register it as a buffer, so that it moves once, with the model")
    else:
        once = Message("move it once")
    if held.module is not None:
        fixes = list(register_attribute(held, dtype=""))
    else:
        fixes = [_moved_once(crossing, held)]
    facts = {"name": held.name, "bytes": crossing.bytes, "source": crossing.source, "target": crossing.target}
    return Found(
        crossing,
        Message("`{name}`, {bytes} bytes, is copied from {source} to {target} at every call", **facts),
        why=Message("{owner} keeps it on {source}, where `Module.to` does not reach it", owner=owner, source=crossing.source),
        birth=held.assigned,
        fixes=(*fixes, Fix(once)),
        severity="info" if crossing.is_index else "warning",  # torch makes the copy without a word
    )


def _moved_once(crossing: UserMove, held: Held) -> Fix | None:
    def change(draft: Draft, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            draft.append(statement.value, f".to({str(crossing.target)!r})")

    return mended(held.assigned, Message("move it once"), change)


_FEWEST_TURNS = 3
"""There and back: a result that is looked at once is no loop."""
_INPUTS = ("inputs", "input_ids", "inputs_embeds", "attention_mask", "token_type_ids", "encoder_outputs", "pixel_values")


def find_generations(trace: Trace) -> Iterator[Found]:
    """Lines that call `generate` of a library, in which data goes to a GPU and back again and again."""
    lines: dict[tuple[str, int], list[Move]] = {}
    for move in trace.moves:
        if move.site is not None and move.site.library is not None and move.cause == "explicit":
            lines.setdefault((move.site.file, move.site.line), []).append(move)
    for moves in lines.values():
        if moves[0].site is not None:
            site = dataclasses.replace(moves[0].site, library=None)
        else:
            site = None
        for device in {move.target for move in moves if move.target.is_accelerator and move.source.kind == "cpu"}:
            there, back = _count_turns(moves, device)
            if site is not None and min(there, back) >= _FEWEST_TURNS and _generations_at(site):
                yield _make_hop_finding(site, device, there, back)


def _count_turns(moves: list[Move], device: DeviceId) -> tuple[int, int]:
    """How often data went from the host to a device, and back."""
    there = sum(move.count for move in moves if move.source.kind == "cpu" and move.target == device)
    return there, sum(move.count for move in moves if move.source == device and move.target.kind == "cpu")


def _make_hop_finding(site: Site, device: DeviceId, there: int, back: int) -> Found:
    facts = {"call": "generate", "target": device, "count": there, "back": back}
    words = Message("give it inputs on {device}", device=device)
    return Found(
        site,
        Message("inside `{call}` data goes from the host to {target} {count} times, and {back} times back", **facts),
        why=Message("each result is put where the prompt is, which is not where the model is, and the host waits for it"),
        fixes=(mended(site, words, _move_inputs), Fix(words, "inputs.to(model.device)")),
        severity="info",
    )


def _generations_at(site: Site) -> list[ast.Call]:
    at = code_at(site)
    if at is not None:
        return list(_generations_in(*at))
    return []


def _generations_in(code: Code, statement: ast.stmt) -> Iterator[ast.Call]:
    for node in code.parts(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "generate":
            yield node


def _move_inputs(draft: Draft, statement: ast.stmt) -> None:
    """`model.generate(ids.to(model.device))`, and the same for a batch of a tokenizer, `**batch.to(model.device)`."""
    for call in _generations_in(draft.code, statement):
        if isinstance(call.func, ast.Attribute):
            model = draft.code.text(call.func.value)
        else:
            model = ""
        given = [*call.args[:1], *(each.value for each in call.keywords if each.arg is None or each.arg in _INPUTS)]
        batches = [each.value for each in call.keywords if each.arg is None]
        if model.replace(".", "").isidentifier() and all(_is_tokenized(draft.code, statement, each) for each in batches):
            for each in given:
                if isinstance(each, ast.Name | ast.Attribute | ast.Subscript):
                    draft.append(each, f".to({model}.device)")


def _is_tokenized(code: Code, statement: ast.stmt, batch: ast.expr) -> bool:
    """Whether a tokenizer made a batch: a plain dict cannot move itself."""
    scope = code.scope(statement)
    made = [each.value for each in ast.walk(scope) if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) ==
            ast.unparse(batch) and each.lineno < statement.lineno]  # fmt: skip
    return len(made) == 1 and isinstance(made[0], ast.Call) and ast.unparse(made[0].func).endswith(("tokenizer", "processor"))
