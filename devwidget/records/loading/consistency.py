"""Conditions between the fields of a record that every view relies on. Loaded files are checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from devwidget.records.loading.typed_reader import register_check
from devwidget.records.parallel import CollectiveCall, DataParallelCall, ProcessGroup
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
from devwidget.records.trace import Trace

Wrong = Iterator[tuple[str, str]]

MOST_ELEMENTS = 2**63
DEEPEST = 2**16 - 1
"""Maximum nesting of modules, which is sent to a page as 16 bits."""


@register_check(Snapshot)
def _check_pre_order(snapshot: Snapshot) -> Wrong:
    """Check that parents come before their children, one level higher."""
    for place, module in enumerate(snapshot.modules):
        if not (0 <= module.parent < place if place else module.parent == -1):
            yield f"modules[{place}].parent", "the index of an earlier module" if place else "-1 for the root"
        elif module.depth != _find_depth(snapshot.modules, module.parent) or module.depth > DEEPEST:
            yield f"modules[{place}].depth", "one more than the depth of its parent"


def _find_depth(modules: tuple[ModuleFacts, ...], parent: int) -> int:
    if parent >= 0:
        return modules[parent].depth + 1
    return 0


@register_check(TensorFacts)
def _check_elements(tensor: TensorFacts) -> Wrong:
    """Check that no tensor has more elements than torch can count."""
    shape = tensor.shape or ()
    if len(shape) > 64 and any(size != 1 for size in shape[64:]):
        yield "shape", "64 dimensions at most"
    elif math.prod(shape) > MOST_ELEMENTS:
        yield "shape", "fewer than 2**63 elements"


@register_check(DataParallelCall)
def _check_devices(call: DataParallelCall) -> Wrong:
    if not call.device_ids:
        yield "device_ids", "at least one device"


def check_groups(collectives: Sequence[CollectiveCall], groups: Sequence[ProcessGroup]) -> Wrong:
    """Check that a collective belongs to a process group."""
    for at, call in enumerate(collectives):
        if call.group >= len(groups):
            yield f"collectives[{at}].group", "an index into `groups`"


@register_check(Trace)
def _check_replicas(trace: Trace) -> Wrong:
    """Check that a replica belongs to a call, and ran on one of its devices."""
    yield from check_groups(trace.collectives, trace.groups)
    calls = {call.number: call for call in trace.parallel}
    for place, replica in enumerate(trace.replicas):
        call = calls.get(replica.call)
        if call is not None and replica.device not in call.device_ids:
            yield f"replicas[{place}].device", "one of the devices of its call"
