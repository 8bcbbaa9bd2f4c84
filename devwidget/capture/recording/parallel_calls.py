"""Each recorded DataParallel call. Backward adds to it long after the call has returned."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch

from devwidget.capture.recording.event_log import device_id, make_record
from devwidget.capture.source_code.call_sites import RawSite
from devwidget.capture.tensors import nodes_behind
from devwidget.records.parallel import DataParallelCall, Piece, Replica

CALL = "devwidget.call"
"""Metadata key under which an autograd node of a step stores its call, so that backward knows whose gradients it moves."""
GATHERED = "devwidget.gathered"
"""Metadata key that marks the node of a gathered tensor."""
NUMBER = "devwidget.number"
"""Metadata key that marks the node of a vector gathered from one number per replica."""
MOST_CALLS = 1000
"""Calls kept, the latest ones. A longer loop repeats the same picture."""
MOST_NODES = 100
"""Autograd nodes searched per question. The parameters of a module are closer than that."""


@dataclass(slots=True, eq=False)
class ReplicaRun:
    """One replica, from its share of the batch to its gradients."""

    samples: int = 0
    inputs: tuple[Piece, ...] = ()
    outputs: tuple[Piece, ...] = ()
    parameter_bytes: int = 0
    buffer_bytes: int = 0
    gradient_bytes: int = 0
    started: float = 0.0
    seconds: float = 0.0
    thread: str = ""
    failed: bool = False
    peak_bytes: int = 0


@dataclass(slots=True, eq=False)
class WrapperCall:
    """One call of a wrapper, during and after it.

    Attributes:
        gives_numbers: the class whose forward returned one number per replica, which were gathered into a vector.
    """

    number: int
    path: str
    class_name: str
    devices: tuple[torch.device, ...]
    output_device: torch.device
    dim: int
    site: RawSite | None
    started: float
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    runs: list[ReplicaRun] = field(default_factory=list)
    gathered_on: torch.device | None = None
    backward: bool = False
    with_grad: bool = False
    gives_numbers: type | None = None

    def replica_run(self, number: int) -> ReplicaRun:
        """Return a replica's entry. A forward without arguments has one although nothing was scattered."""
        while len(self.runs) <= number:
            self.runs.append(ReplicaRun())
        return self.runs[number]

    def note_reduced(self, device: torch.device, size: int) -> None:
        """Note that gradients of the replica on a device were reduced."""
        self.backward = True
        if device in self.devices:
            self.replica_run(self.devices.index(device)).gradient_bytes += size

    def make_record(self) -> DataParallelCall:
        """Return the call as a record."""
        steps = {f"{name}_seconds": seconds for name, seconds in self.steps.items()}
        return make_record(DataParallelCall, self, wrapper=self.path, device_ids=tuple(map(device_id, self.devices)), **steps)

    def list_replicas(self) -> list[Replica]:
        """Return the replicas as records; none if the module was called directly."""
        if "replicate" not in self.steps:
            return []
        gathered_on = device_id(self.gathered_on) if self.gathered_on is not None else None
        own: dict[str, Any] = {"wrapper": self.path, "call": self.number, "gathered_on": gathered_on}
        return [
            make_record(
                Replica,
                run,
                **own,
                number=number,
                device=device_id(self.devices[number]),
                input_bytes=sum(piece.bytes for piece in run.inputs),
                output_bytes=sum(piece.bytes for piece in run.outputs),
            )
            for number, run in enumerate(self.runs)
        ]


def find_call(node: Any) -> WrapperCall | None:
    """Return the call in whose replicas a node of autograd was made; None if it was made outside of them, or is too far away.

    The graph of a replica leads to its copies of the parameters or to its share of the batch, and to nothing gathered.
    """
    if CALL in node.metadata:  # a step of a call, outside of its replicas
        return None
    behind = nodes_behind((before for before, _ in node.next_functions), lambda each: CALL in each.metadata)
    for each in itertools.islice(behind, MOST_NODES):
        call: WrapperCall | None = each.metadata.get(CALL)
        if GATHERED in each.metadata:
            return None
        if call is not None:
            return call
    return None


class ParallelCalls:
    """The DataParallel calls of one recording."""

    def __init__(self) -> None:
        self._calls: list[WrapperCall] = []

    def add_call(self, call: WrapperCall) -> None:
        """Add a call of a wrapper."""
        self._calls.append(call)
        del self._calls[:-MOST_CALLS]

    def latest_call(self) -> WrapperCall | None:
        """Return the call that ended last, or still runs."""
        if self._calls:
            return self._calls[-1]
        return None

    def list_facts(self) -> dict[str, Any]:
        """Return the calls in order, and their replicas."""
        replicas = tuple(replica for call in self._calls for replica in call.list_replicas())
        return {"parallel": tuple(call.make_record() for call in self._calls), "replicas": replicas}
