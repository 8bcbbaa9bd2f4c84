"""ping-pong: data crosses between the same two devices again and again.

Why: each crossing waits for the computation before it, so neither device is busy for long.
Bad: layers assigned to two GPUs in turn.
Good: the first half of the layers on one GPU, the second half on the other: one crossing.
Source: https://docs.pytorch.org/tutorials/intermediate/model_parallel_tutorial.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, listed
from devwidget.records.trace import Trace, UserMove
from devwidget.rules.edits.draft import Draft, fix
from devwidget.rules.edits.moves_left_out import leave_out
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.registry import rule
from devwidget.rules.repeated_writes import made_there

_GROUP = Message("group the layers: put consecutive layers on the same device, so that the data is transferred once")
ENOUGH = 3
"""Transfers of one chain of data. A single excursion there and back has two and may be intended."""


@rule(
    "ping-pong",
    "warning",
    needs=("forward",),
    why=Message("each transfer waits for the computation before it, so neither device is busy for long"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each pair of devices and forward pass, at the line with most transfers."""
    known = {crossing.number: crossing for crossing in trace.crossings}
    longest: dict[tuple[object, ...], list[UserMove]] = {}
    for crossing in trace.crossings:
        pair = frozenset((crossing.source, crossing.target))
        chain = [c for c in (*(known[n] for n in crossing.chain if n in known), crossing) if _belongs(c, crossing, pair)]
        computed = all(c.computed for c in chain[:-1])
        if len(chain) >= ENOUGH and computed and len(chain) > len(longest.get((pair, crossing.step), [])):
            longest[pair, crossing.step] = chain
    misplaced = {o.birth for fault in trace.faults for o in fault.operands if o.stray and o.birth is not None}
    for chain in longest.values():
        if not any(crossing.into is not None and crossing.into.birth in misplaced for crossing in chain):
            yield _make_finding(chain)  # otherwise another finding reports the misplaced tensor


def _belongs(other: UserMove, last: UserMove, pair: frozenset[object]) -> bool:
    same_pass = other.step == last.step and other.phase == "forward"
    return same_pass and not other.meant and frozenset((other.source, other.target)) == pair


def _make_finding(chain: list[UserMove]) -> Found:
    sites = [crossing.site for crossing in chain]
    fault = max(reversed(sites), key=sites.count)  # the last one, if two lines transfer equally often
    first, total = chain[0], sum(crossing.bytes for crossing in chain)
    pair = tuple(sorted((first.source, first.target)))
    facts = {"names": listed(map(str, pair)), "count": len(chain), "total": total}
    return Found(
        next(crossing for crossing in chain if crossing.site == fault),
        Message("one forward pass transfers its data {count} times between {names}, {total} bytes in total", **facts),
        birth=chain[0].site if chain[0].site != fault else None,
        birth_moves=True,
        fixes=(_stay(chain), made_there(first), _grouped(chain), Fix(_GROUP, "", "likely")),
        no_edit=Message("no edit: no line was found that assigns layers to devices in turn"),
        cause=f"{pair[0]}, {pair[1]} at {fault}",
    )


def _grouped(chain: list[UserMove]) -> Fix | None:
    """`f"cuda:{i % 2}" for i in range(depth)` becomes `f"cuda:{i * 2 // depth}" for i in range(depth)`."""
    at = code_at(chain[-1].site)
    if at is None:
        return None
    draft = Draft(at[0])
    for node in ast.walk(at[0].tree):
        place = _dealt(at[0], node) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) else None
        if place is not None and isinstance(node, ast.BinOp):
            index, many = ast.unparse(node.left), ast.unparse(node.right)
            draft.replace(node, f"{index} * {many} // {ast.unparse(place)}")
    return fix(_GROUP, draft, "likely")


def _dealt(code: Code, node: ast.BinOp) -> ast.expr | None:
    """The number of layers in a loop, `depth`, if this remainder chooses the device: `cuda:{i % 2}`, `devices[i % n]`."""
    around = code.parents.get(node)
    if isinstance(around, ast.FormattedValue):
        words = code.text(code.parents.get(around) or around)
    else:
        words = ""
    chosen_by = isinstance(around, ast.Subscript) and around.slice is node and "device" in ast.unparse(around.value)
    if not isinstance(node.left, ast.Name) or not (chosen_by or "cuda:{" in words.replace(" ", "")):
        return None
    for outer in code.around(node):
        for loop in [outer] if isinstance(outer, ast.For) else getattr(outer, "generators", []):
            index = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
            if not isinstance(index, ast.Name) or index.id != node.left.id or not isinstance(loop.iter, ast.Call):
                continue
            (first, *more), by = loop.iter.args or (None,), ast.unparse(loop.iter.func)
            if by == "range" and not more:
                return first
            if by == "enumerate" and not more and first is not None:
                return ast.Call(ast.Name("len"), [first], [])
    return None


def _stay(chain: list[UserMove]) -> Fix | None:
    """If the data passes through the host: remove `.cpu()` from the lines that leave the GPU."""
    drafts: dict[str, Draft] = {}
    for crossing in chain:
        at = code_at(crossing.site) if str(crossing.target) == "cpu" else None
        if at is not None:
            leave_out(drafts.setdefault(at[0].file, Draft(at[0])), at[1], crossing.target)
    if len(drafts) == 1:
        return fix(Message("keep it on the GPU"), next(iter(drafts.values())), "likely")
    return None
