"""corrupted-copy: values change while they are copied from one GPU to another.

Why: on some machines direct copies between GPUs arrive corrupted, most often under an IOMMU, and no error is raised.
Bad: `hidden.to('cuda:1')` with a different checksum on cuda:1 than on cuda:0. Only `verify_hops=True` checks this.
Good: fix the machine (IOMMU or ACS off, a newer driver); until then `hidden.cpu().to('cuda:1')`.
Source: https://github.com/Dasharo/dasharo-issues/issues/436
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import CopyCheck, Trace
from devwidget.rules.found import Found
from devwidget.rules.registry import rule


@rule(
    "corrupted-copy",
    "error",
    needs=("copy checks",),
    why=Message("the checksums on the two GPUs differ: results on the second one are wrong, and no error is raised"),
    on_request=True,
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each pair of GPUs, at the first line whose copy was corrupted."""
    pairs: dict[tuple[DeviceId, DeviceId], list[CopyCheck]] = {}
    for each in trace.copy_checks:
        pairs.setdefault((each.source, each.target), []).append(each)
    for checks in pairs.values():
        damaged = [each for each in checks if each.wrong]
        if damaged:
            yield _make_finding(checks, damaged)


def _make_finding(checks: list[CopyCheck], damaged: list[CopyCheck]) -> Found:
    first = damaged[0]
    count, wrong = sum(each.count for each in checks), sum(each.wrong for each in damaged)
    facts = {"wrong": wrong, "count": count, "source": first.source, "target": first.target}
    return Found(
        first,
        Message("{wrong} of {count} copies from {source} to {target} arrived corrupted", **facts),
        fixes=(
            Fix(Message("fix the machine: disable IOMMU or ACS, or update the driver"), confidence="choice"),
            Fix(Message("copy through the host until then"), f'tensor.cpu().to("{first.target}")', "choice"),
        ),
        notes=(Message("the driver lets these two GPUs copy directly: {answer}", answer=first.peer_access),),
        also=dict.fromkeys(each.module for each in damaged),
        cause=f"{first.source} -> {first.target}",
    )
