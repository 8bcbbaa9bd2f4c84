"""Two traces, and what differs between them; line numbers are no difference, because edits move them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from devwidget.records.comparison import Comparison, HopChange, PeakChange
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.site import Phase
from devwidget.records.trace import Move, Trace
from devwidget.views.memory import peak_bytes
from devwidget.views.placement import device_order
from devwidget.views.sums import group_by, total

_Line = tuple[DeviceId, DeviceId, str, Phase, str | None, str]
"""What crossings have in common that count as the same: the first fields of `HopChange`."""


def compare_traces(before: Trace, after: Trace) -> Comparison:
    """Compare two traces: findings, hops by line, peaks."""
    old, new = group_by(before.findings, _finding_cause), group_by(after.findings, _finding_cause)
    return Comparison(
        fixed=tuple(each for each in before.findings if _finding_cause(each) not in new),
        new=tuple(each for each in after.findings if _finding_cause(each) not in old),
        left=tuple(each for each in after.findings if _finding_cause(each) in old),
        hops=_hop_changes(before, after),
        peaks=tuple(_peak_changes(before, after)),
        hops_before=total(before.moves, "count"),
        hops_after=total(after.moves, "count"),
        bytes_before=total(before.moves, "all_bytes"),
        bytes_after=total(after.moves, "all_bytes"),
        error_before=before.error,
        error_after=after.error,
    )


def _finding_cause(finding: Finding) -> object:
    return finding.kind, finding.module, finding.headline


def _hop_changes(before: Trace, after: Trace) -> tuple[HopChange, ...]:
    old, new = _sum_lines(before.moves), _sum_lines(after.moves)
    changes = []
    for line in {**old, **new}:
        (count, size), (count_after, size_after) = old.get(line, (0, 0)), new.get(line, (0, 0))
        if (count, size) != (count_after, size_after):
            changes.append(HopChange(*line, count, count_after, size, size_after))
    return tuple(sorted(changes, key=lambda each: -max(each.before_bytes, each.after_bytes)))


def _sum_lines(moves: Iterable[Move]) -> dict[_Line, tuple[int, int]]:
    """Crossings and bytes of each line."""
    groups = group_by(moves, _line_of)
    return {line: (total(group, "count"), total(group, "all_bytes")) for line, group in groups.items()}


def _line_of(move: Move) -> _Line:
    text = ""
    if move.site is not None:
        text = " ".join(move.site.text.split())
    return move.source, move.target, move.cause, move.phase, move.module, text


def _peak_changes(before: Trace, after: Trace) -> Iterator[PeakChange]:
    old, new = peak_bytes(before), peak_bytes(after)
    for device in sorted({*old, *new}, key=device_order):
        yield PeakChange(device, old.get(device, 0), new.get(device, 0))
