"""What must hold between the fields of a record so that every view can show it; a loaded file is held to it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from devwidget.records.loading.typed_reader import checked
from devwidget.records.parallel import DataParallelCall
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.tensor import TensorFacts
from devwidget.records.trace import Trace

Wrong = Iterator[tuple[str, str]]

MOST_ELEMENTS = 2**63
DEEPEST = 2**16 - 1
"""Nesting of modules, which travels to a page as 16 bits."""


@checked(Snapshot)
def _pre_order(snapshot: Snapshot) -> Wrong:
    """Parents stand before their children, one level higher."""
    for place, module in enumerate(snapshot.modules):
        if not (0 <= module.parent < place if place else module.parent == -1):
            yield f"modules[{place}].parent", "the index of an earlier module" if place else "-1 for the root"
        elif module.depth != _depth(snapshot.modules, module.parent) or module.depth > DEEPEST:
            yield f"modules[{place}].depth", "one more than that of its parent"


def _depth(modules: tuple[ModuleFacts, ...], parent: int) -> int:
    return modules[parent].depth + 1 if parent >= 0 else 0


@checked(TensorFacts)
def _elements(tensor: TensorFacts) -> Wrong:
    """No tensor has more elements than torch can count, whatever its file says."""
    shape = tensor.shape or ()
    if len(shape) > 64 and any(size != 1 for size in shape[64:]):
        yield "shape", "64 dimensions at most"
    elif math.prod(shape) > MOST_ELEMENTS:
        yield "shape", "less than 2**63 elements"


@checked(DataParallelCall)
def _devices(call: DataParallelCall) -> Wrong:
    if not call.device_ids:
        yield "device_ids", "one device or more"


@checked(Trace)
def _replicas(trace: Trace) -> Wrong:
    """A replica belongs to a call, and runs on one of its devices."""
    calls = {call.number: call for call in trace.parallel}
    for place, replica in enumerate(trace.replicas):
        call = calls.get(replica.call)
        if call is not None and replica.device not in call.device_ids:
            yield f"replicas[{place}].device", "one of the devices of its call"
