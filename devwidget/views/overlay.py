"""What a trace adds to the rows of the module tree: where data came in and went out, hops, findings; blocks that repeat."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from devwidget.records.device import DeviceId
from devwidget.records.finding import SEVERITIES
from devwidget.records.trace import Fault, Trace
from devwidget.views.hops import group_hops, with_forward_lines
from devwidget.views.placement import PlacementTable, nearest_row


@dataclass(slots=True)
class RowMark:
    """What happened at one row, or below it.

    Attributes:
        hops: crossings while the row itself ran; `hops_below` also counts the rows below.
        findings: numbers of the findings of the row itself, `findings_below` of the rows below.
        severity, severity_below: how bad the worst of them is, 3 for an error; 0 without any.
    """

    hops: int = 0
    hops_below: int = 0
    findings: tuple[int, ...] = ()
    findings_below: tuple[int, ...] = ()
    severity: int = 0
    severity_below: int = 0


RowHops = dict[int, dict[int, tuple[int, int]]]
"""Row -> the lines of `group_hops(trace.moves)` that crossed while it ran, with how often the row itself did, and its bytes."""


@dataclass(slots=True)
class Overlay:
    """Marks and device flows by row; rows without any are left out.

    Attributes:
        marks: row -> RowMark.
        flows: row -> (devices in, devices out).
        rows_of_findings: for each finding its row, -1 outside the model.
        hops: crossings by row.
    """

    marks: dict[int, RowMark] = field(default_factory=dict)
    flows: dict[int, tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]] = field(default_factory=dict)
    rows_of_findings: list[int] = field(default_factory=list)
    hops: RowHops = field(default_factory=dict)


def make_overlay(placement: PlacementTable, trace: Trace | None) -> Overlay:
    """The marks of a trace on the rows of a placement."""
    result = Overlay()
    if trace is None or not len(placement):
        return result
    index = {path: row for row, path in reversed(list(enumerate(placement.paths)))}
    result.hops, faults = _hops_by_row(index, trace), _findings_by_row(index, trace, result)
    result.marks = _mark_rows(placement, trace, result.hops, faults)
    for event in trace.modules:
        row = index.get(event.path, -1)
        if row >= 0:
            before = result.flows.get(row, ((), ()))
            result.flows[row] = (_join_devices(before[0], event.inputs), _join_devices(before[1], event.outputs))
    return result


def _hops_by_row(index: dict[str, int], trace: Trace) -> RowHops:
    """Row -> line -> its crossings, each counted once: in the module whose line it is."""
    lines = {number: line for line, hop in enumerate(group_hops(trace.moves)) for number in hop.numbers}
    found: RowHops = {}
    for move in with_forward_lines(trace.moves):
        if move.module is not None:
            own = found.setdefault(nearest_row(index, move.module), {})
            count, size = own.get(lines[move.number], (0, 0))
            own[lines[move.number]] = (count + move.count, size + move.all_bytes)
    return {row: dict(sorted(own.items())) for row, own in found.items()}


def _findings_by_row(index: dict[str, int], trace: Trace, result: Overlay) -> dict[int, list[int]]:
    """Row -> numbers of findings. An attribute named by a path such as `attention.mask` has a row of its own."""
    rows: dict[int, list[int]] = {}
    strays = {fault.number: [path for path in _stray_paths(fault) if path in index] for fault in trace.faults}
    for number, finding in enumerate(trace.findings):
        paths = [finding.module, *finding.also]
        for name in finding.explains:
            paths += strays.get(name, ())
        found = [nearest_row(index, path) for path in paths if path is not None]
        for row in dict.fromkeys(found):
            rows.setdefault(row, []).append(number)
        result.rows_of_findings.append(found[0] if found else -1)
    return rows


def _stray_paths(fault: Fault) -> Iterator[str]:
    """Where modules keep the tensors that were in the wrong place."""
    for operand in fault.operands:
        if operand.stray and operand.held is not None and operand.held.module is not None:
            yield f"{operand.held.module}.{operand.held.name}".lstrip(".")


def _rows_above(placement: PlacementTable, row: int) -> Iterator[int]:
    """Yield the parents of a row, up to the root."""
    while placement.parents[row] >= 0:
        row = placement.parents[row]
        yield row


def _mark_rows(placement: PlacementTable, trace: Trace, hops: RowHops, findings: dict[int, list[int]]) -> dict[int, RowMark]:
    marks: dict[int, RowMark] = {}
    for row, own in hops.items():
        count = sum(count for count, _ in own.values())
        marks.setdefault(row, RowMark()).hops = count
        for each in (row, *_rows_above(placement, row)):
            marks.setdefault(each, RowMark()).hops_below += count
    for row, numbers in findings.items():
        worst = max(len(SEVERITIES) - SEVERITIES.index(trace.findings[number].severity) for number in numbers)
        mark = marks.setdefault(row, RowMark())
        mark.findings, mark.severity = tuple(numbers), worst
        for each in _rows_above(placement, row):
            mark = marks.setdefault(each, RowMark())
            mark.findings_below = tuple(dict.fromkeys((*mark.findings_below, *numbers)))
            mark.severity_below = max(mark.severity_below, worst)
    return dict(sorted(marks.items()))


def _join_devices(one: tuple[DeviceId, ...], other: tuple[DeviceId, ...]) -> tuple[DeviceId, ...]:
    return tuple(dict.fromkeys((*one, *other)))


FEWEST, FEWEST_LEAVES = 3, 10
"""Two blocks of a kind are read as fast as one line that says so, and so are a few rows without anything below them."""


def repeated_blocks(table: PlacementTable, marks: Overlay) -> dict[int, int]:
    """First row of each run of identical blocks -> how many they are.

    Identical are classes, devices, dtypes, sizes, notes and, after a trace, the devices of what went in and came out; a
    block in which something hops or was found is like no other.
    """
    looks, own = [0] * len(table), _own_looks(table, marks)
    children: dict[int, list[int]] = {}
    known: dict[Hashable, int] = {}
    found: dict[int, int] = {}
    for row in range(len(table) - 1, -1, -1):
        below = children.pop(row, None)
        look: Hashable = own[row]
        if below is not None:
            found.update(_find_runs(below[::-1], looks, table))
            look = (look, *((table.names[child], looks[child]) for child in below))
        # equal subtrees share a number, so that runs are found by comparing numbers; a row with a mark has one of its own
        if row in marks.marks:
            looks[row] = -1 - row
        else:
            looks[row] = known.setdefault(look, len(known))
        children.setdefault(table.parents[row], []).append(row)
    return found


def _own_looks(table: PlacementTable, marks: Overlay) -> list[Hashable]:
    """All that is seen of each row but its name."""
    flows = map(marks.flows.get, range(len(table)))
    sizes = (table.parameters, table.bytes, table.gradients)
    return list(zip(table.classes, table.devices, table.dtypes, *sizes, table.notes, flows, strict=True))


def _find_runs(siblings: list[int], looks: list[int], table: PlacementTable) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in range(1, len(siblings) + 1):
        if stop < len(siblings) and looks[siblings[stop]] == looks[siblings[start]]:
            continue
        first = siblings[start]
        is_block = first + 1 < len(table) and table.parents[first + 1] == first
        if stop - start >= (FEWEST if is_block else FEWEST_LEAVES):
            yield first, stop - start
        start = stop
