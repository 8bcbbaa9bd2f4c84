"""Copies between GPUs that were verified, by pair: how many arrived as they were sent, and what the driver says of the pair."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.trace import Trace
from devwidget.report.style.columns import columns

_PEER = {"yes": "direct", "no": "through the host", "unknown": "peer access unknown"}


def copy_lines(trace: Trace) -> Iterator[str]:
    """A row for each pair of GPUs; nothing where no copy was verified."""
    pairs = dict.fromkeys((each.source, each.target, each.peer_access) for each in trace.copy_checks)
    rows = []
    for source, target, peer in pairs:
        checks = [each for each in trace.copy_checks if (each.source, each.target) == (source, target)]
        count, wrong = sum(each.count for each in checks), sum(each.wrong for each in checks)
        rows.append((f"{source} -> {target}", f"{count}x", f"{wrong} arrived changed" if wrong else "as sent", _PEER[peer]))
    if rows:
        yield "copies between GPUs, checksums at both ends"
        yield from columns(rows, right=(1,), indent="  ")
