"""Two traces, and what differs between them; line numbers are no difference, because edits move them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from devwidget.records.comparison import Comparison, HopChange, PeakChange
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.site import Phase
from devwidget.records.trace import Move, Trace
from devwidget.views.memory import peak_bytes
from devwidget.views.placement import device_order
from devwidget.views.sums import total


class _Line(NamedTuple):
    """What crossings have in common that count as the same."""

    source: DeviceId
    target: DeviceId
    cause: str
    phase: Phase
    module: str | None
    text: str


def compare_traces(before: Trace, after: Trace) -> Comparison:
    """What the second trace has more, less, or otherwise than the first."""
    old, new = {_finding_cause(each) for each in before.findings}, {_finding_cause(each) for each in after.findings}
    return Comparison(
        fixed=tuple(each for each in before.findings if _finding_cause(each) not in new),
        new=tuple(each for each in after.findings if _finding_cause(each) not in old),
        left=tuple(each for each in after.findings if _finding_cause(each) in old),
        hops=_hop_changes(before, after),
        peaks=_peak_changes(before, after),
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
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    changes = [_hop_change(key, old.get(key, (0, 0)), new.get(key, (0, 0))) for key in changed]
    return tuple(sorted(changes, key=lambda each: -max(each.before_bytes, each.after_bytes)))


def _hop_change(line: _Line, before: tuple[int, int], after: tuple[int, int]) -> HopChange:
    return HopChange(line.source, line.target, line.cause, line.phase, line.module, line.text, before[0], after[0], before[1],
                     after[1])  # fmt: skip


def _sum_lines(moves: Iterable[Move]) -> dict[_Line, tuple[int, int]]:
    """Crossings and bytes of each line."""
    sums: dict[_Line, tuple[int, int]] = {}
    for move in moves:
        if move.site is not None:
            text = " ".join(move.site.text.split())
        else:
            text = ""
        key = _Line(move.source, move.target, move.cause, move.phase, move.module, text)
        count, size = sums.get(key, (0, 0))
        sums[key] = count + move.count, size + move.all_bytes
    return sums


def _peak_changes(before: Trace, after: Trace) -> tuple[PeakChange, ...]:
    old, new = peak_bytes(before), peak_bytes(after)
    return tuple(PeakChange(each, old.get(each, 0), new.get(each, 0)) for each in sorted({*old, *new}, key=device_order))
