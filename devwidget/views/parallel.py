"""DataParallel as it ran: the batch cut, the replicas, and what the gather point costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.parallel import Replica
from devwidget.records.trace import Move, Trace


@dataclass(frozen=True, slots=True)
class ParallelCall:
    """One DataParallel module, its calls taken together.

    Attributes:
        wrapper: path of the DataParallel module.
        replicas: in the order of `device_ids`.
        source: where the batch and the parameters came from: the first replica's device.
        gathered_on: where the outputs were collected; None when unknown.
        gathered_bytes: bytes of all outputs on that device.
        copied_bytes: bytes of parameters and buffers copied to the other devices.
        reduced_bytes: bytes of gradients that came back in backward.
    """

    wrapper: str
    replicas: tuple[Replica, ...]
    source: DeviceId
    gathered_on: DeviceId | None
    gathered_bytes: int
    copied_bytes: int
    reduced_bytes: int

    @property
    def samples(self) -> int:
        """Length of the whole batch."""
        return sum(replica.samples for replica in self.replicas)


def parallel_calls(trace: Trace) -> tuple[ParallelCall, ...]:
    """One entry for each wrapper that ran, in the order of their first call."""
    groups: dict[str, list[Replica]] = {}
    for replica in trace.replicas:
        groups.setdefault(replica.wrapper, []).append(replica)
    return tuple(_call(wrapper, group, trace.moves) for wrapper, group in groups.items())


def _call(wrapper: str, group: list[Replica], moves: Iterable[Move]) -> ParallelCall:
    replicas = _last_of_each(group)
    reduced = sum(move.bytes * move.count for move in moves if move.cause == "reduce")
    return ParallelCall(
        wrapper=wrapper,
        replicas=replicas,
        source=replicas[0].device,
        gathered_on=replicas[0].gathered_on,
        gathered_bytes=sum(replica.output_bytes for replica in replicas),
        copied_bytes=sum(replica.parameter_bytes for replica in replicas),
        reduced_bytes=reduced,
    )


def _last_of_each(group: list[Replica]) -> tuple[Replica, ...]:
    """The last call's replicas: a loop that calls the model many times repeats the same picture."""
    latest: dict[int, Replica] = {}
    for replica in group:
        latest[replica.number] = replica
    return tuple(latest[number] for number in sorted(latest))
