"""blocking-copy: a loader's large batches are copied to a GPU with blocking copies.

Why: without pinned memory and `non_blocking=True` Python waits for the copy and for all work queued before it.
Bad: `DataLoader(data, batch_size=256)` and `x.to('cuda')`.
Good: `DataLoader(data, batch_size=256, pin_memory=True)` and `x.to('cuda', non_blocking=True)`.
Source: https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from devwidget.records.device import PLACING_METHODS
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Trace, UserMove
from devwidget.rules.call_edits import add_keyword
from devwidget.rules.edits.draft import code_of_edits, mended, merged
from devwidget.rules.found import Found
from devwidget.rules.registry import rule

LEAST_BYTES = 4 * 2**20
"""Bytes of one batch. Smaller ones take under a millisecond even from unpinned memory, at about 6 GB/s."""
LEAST_STEPS = 2
"""A program that copies one batch has no next batch to overlap with."""
_PINNING = frozenset({"cuda", "xpu"})
"""Accelerators with their own memory."""
_BYTES_PER_MILLISECOND = 25 * 10**6
"""Throughput of PCIe 4.0 with 16 lanes from pinned memory. Source: NVIDIA's bandwidthTest, about 25 GB/s of 31.5."""


@rule(
    "blocking-copy",
    "info",
    needs=("forward",),
    why=Message("without pinned memory and `non_blocking=True` the copy, and all work queued before it, blocks the host"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for a program, with all lines that copy batches of its loaders."""
    copies = [each for each in trace.crossings if _blocks(each)]
    steps: Counter[int] = Counter()
    for each in copies:
        steps[each.step] += each.bytes
    if len(steps) >= LEAST_STEPS and max(steps.values()) >= LEAST_BYTES:
        yield _finding(copies, max(steps.values()))


def _blocks(copy: UserMove) -> bool:
    loading = copy.loading
    if loading is None or copy.meant or copy.target.kind not in _PINNING:
        return False
    return not (loading.is_pinned and loading.is_asynchronous)


def _finding(copies: list[UserMove], size: int) -> Found:
    first = copies[0]
    loading = first.loading
    assert loading is not None
    facts = {"bytes": size, "target": first.target, "count": f"{size / _BYTES_PER_MILLISECOND:.1f}"}
    headline = Message("{bytes} bytes of a batch are copied to {target} from unpinned memory", **facts)
    if loading.is_pinned:
        headline = Message("copying {bytes} bytes of a batch to {target} blocks the host", **facts)
    notes = [Message("the copy takes at least {count} ms per step at 25 GB/s (PCIe 4.0)", **facts)]
    if loading.loader is not None:
        notes.append(Message("the loader is created at {place}", place=loading.loader))
    fixes = (_unblocked(copies), Fix(_summary(pinned=loading.is_pinned)))
    return Found(first, headline, notes=notes, fixes=fixes)


def _summary(*, pinned: bool) -> Message:
    if pinned:
        return Message("copy with non_blocking=True, so that the copy does not block the host")
    return Message("pin the batches in the loader and copy with non_blocking=True, so that the copy does not block the host")


def _unblocked(copies: list[UserMove]) -> Fix | None:
    """The edits of all lines together; None if one of the lines cannot be edited."""
    unpinned: dict[Site | None, None] = {}
    waiting: dict[Site | None, None] = {}
    for each in copies:
        if each.loading is not None and not each.loading.is_pinned:
            unpinned[each.loading.loader] = None
        if each.loading is not None and not each.loading.is_asynchronous:
            waiting[each.site] = None
    fixes = [mended(site, "", add_keyword, ["DataLoader"], "pin_memory", "True") for site in unpinned]
    fixes += [mended(site, "", add_keyword, PLACING_METHODS - {"cpu"}, "non_blocking", "True") for site in waiting]
    both = merged(each.edits for each in fixes if each is not None)
    if not both or None in fixes:
        return None
    return Fix(_summary(pinned=not unpinned), code_of_edits(both), edits=both)
