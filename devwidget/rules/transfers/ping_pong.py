"""ping-pong: data is transferred between the same two devices again and again.

Why: each transfer waits for the computation before it, so neither device is busy for long.
Bad: layers assigned to two GPUs in turn.
Good: the first half of the layers on one GPU, the second half on the other: one transfer.
Source: https://docs.pytorch.org/tutorials/intermediate/model_parallel_tutorial.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.device import CPU, DeviceId
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message, listed
from devwidget.records.trace import Trace, UserMove
from devwidget.rules.edits.draft import Draft, fix, mended
from devwidget.rules.edits.source_file import Code, code_at
from devwidget.rules.found import Found
from devwidget.rules.host_reads import loops_around
from devwidget.rules.registry import rule

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
        chain = _chain_to(crossing, known)
        if len(chain) < ENOUGH or not all(each.computed for each in chain[:-1]):
            continue
        key = (_pair(crossing), crossing.step)
        if len(chain) > len(longest.get(key, [])):
            longest[key] = chain
    strays = [operand for fault in trace.faults for operand in fault.operands if operand.stray]
    misplaced = {operand.birth for operand in strays} - {None}
    for chain in longest.values():
        if not any(each.into is not None and each.into.birth in misplaced for each in chain):
            yield _make_finding(chain)  # otherwise another finding reports the misplaced tensor


def _chain_to(last: UserMove, known: dict[int, UserMove]) -> list[UserMove]:
    """The transfers of the same data between the same devices in one forward pass, up to this one."""
    earlier = [known[number] for number in last.chain if number in known]
    of_pass = [each for each in (*earlier, last) if (each.step, each.phase, each.meant) == (last.step, "forward", "")]
    return [each for each in of_pass if _pair(each) == _pair(last)]


def _pair(crossing: UserMove) -> frozenset[DeviceId]:
    return frozenset((crossing.source, crossing.target))


def _make_finding(chain: list[UserMove]) -> Found:
    sites = [crossing.site for crossing in chain]
    line = max(reversed(sites), key=sites.count)  # the last one, if two lines transfer equally often
    first, total = chain[0], sum(crossing.bytes for crossing in chain)
    pair = sorted((first.source, first.target))
    facts = {"names": listed(map(str, pair)), "count": len(chain), "total": total}
    return Found(
        chain[sites.index(line)],
        Message("one forward pass transfers its data {count} times between {names}, {total} bytes in total", **facts),
        birth=first.site if first.site != line else None,
        birth_moves=True,
        fixes=(_stay(chain), mended(chain[-1].site, _GROUP, _group_layers, instead="")),
        no_edit=Message("no edit: no line was found that assigns layers to devices in turn"),
        cause=f"{pair[0]}, {pair[1]} at {line}",
    )


def _group_layers(draft: Draft, _: ast.stmt) -> None:
    """`f"cuda:{i % 2}" for i in range(depth)` becomes `f"cuda:{i * 2 // depth}" for i in range(depth)`."""
    for node in ast.walk(draft.code.tree):
        match node:
            case ast.BinOp(left=ast.Name(id=index), op=ast.Mod(), right=many) if _chooses_device(draft.code, node):
                depth = _count_turns(draft.code, node, index)
                if depth:
                    draft.replace(node, f"{index} * {ast.unparse(many)} // {depth}")


def _chooses_device(code: Code, remainder: ast.BinOp) -> bool:
    """Whether the remainder is part of `cuda:{i % 2}` or `devices[i % n]`."""
    match code.parents.get(remainder):
        case ast.FormattedValue() as part:
            text = code.text(code.parents.get(part) or part)
            return "cuda:{" in text.replace(" ", "")
        case ast.Subscript(value=items, slice=index):
            return index is remainder and "device" in ast.unparse(items)
    return False


def _count_turns(code: Code, node: ast.BinOp, index: str) -> str:
    """`depth` for `i` of `for i in range(depth)`, `len(layers)` for `i` of `for i, layer in enumerate(layers)`; else ""."""
    for loop in loops_around(code, node):
        counter = loop.target
        if isinstance(counter, ast.Tuple):
            counter = counter.elts[0]
        if not isinstance(counter, ast.Name) or counter.id != index:
            continue
        match loop.iter:
            case ast.Call(func=ast.Name(id="range"), args=[depth]):
                return ast.unparse(depth)
            case ast.Call(func=ast.Name(id="enumerate"), args=[layers]):
                return f"len({ast.unparse(layers)})"
    return ""


def _stay(chain: list[UserMove]) -> Fix | None:
    """If the data passes through the host: remove `.cpu()` from the lines that leave the GPU."""
    drafts: dict[str, Draft] = {}
    for crossing in chain:
        at = code_at(crossing.site)
        if at is not None and crossing.target == CPU:
            code, statement = at
            draft = drafts.setdefault(code.file, Draft(code))
            draft.leave_out(statement, crossing.target)
    if len(drafts) == 1:
        return fix(Message("stay on the device"), drafts.popitem()[1])
    return None
