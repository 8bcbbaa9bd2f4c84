"""What runs in parallel: the calls of nn.DataParallel with their replicas, and collectives between processes."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import Duration, Length, Size
from devwidget.records.site import Phase, Site


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor that a replica was given, or gave back.

    Attributes:
        name: what the signature or the container calls it: `input`, `args[1]`, `labels`, `batch['mask']`, `output['logits']`.
        shape: of this replica's part.
        dtype: of this replica's part.
        bytes: of this replica's part.
        start: where it begins in the whole, along the axis that is cut.
        stop: where it ends.
        source: where it came from: the device of the whole for an input, of the replica for an output.
    """

    name: str
    shape: tuple[Length, ...]
    dtype: str
    bytes: Size
    start: int
    stop: int
    source: DeviceId


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of one DataParallel call.

    Attributes:
        wrapper: path of the DataParallel module.
        number: its place in `device_ids`.
        device: where it ran.
        samples: length of its inputs along the scatter dimension, 0 when it got no tensor.
        input_bytes: bytes of its part of the inputs.
        parameter_bytes: bytes of parameters and buffers copied to it (0 for the first).
        output_bytes: bytes of its outputs, gathered afterwards.
        peak_bytes: `max_memory_allocated` of its device at the end of the call: the highest since it was last reset. 0 when
            unknown.
        seconds: wall time of its forward.
        gathered_on: where the outputs were collected; None if they never were.
        call: number of the DataParallelCall.
        buffer_bytes: how many of `parameter_bytes` are buffers.
        gradient_bytes: bytes of gradients that were brought from it to the source in backward.
        started: seconds after the start of the recording.
        thread: name of the thread that ran it; "" if it never ran.
        failed: its forward raised.
        inputs: its part of each tensor that went in.
        outputs: its part of each tensor that came out.
    """

    wrapper: str
    number: int
    device: DeviceId
    samples: Size
    input_bytes: Size
    parameter_bytes: Size
    output_bytes: Size
    peak_bytes: Size
    seconds: Duration
    gathered_on: DeviceId | None
    call: int = 0
    buffer_bytes: Size = 0
    gradient_bytes: Size = 0
    started: float = 0.0
    thread: str = ""
    failed: bool = False
    inputs: tuple[Piece, ...] = ()
    outputs: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class DataParallelCall:
    """One call of a DataParallel module; its replicas refer to it by number.

    Attributes:
        number: its place in the trace.
        wrapper: path of the DataParallel module.
        class_name: the class that it wraps.
        device_ids: all devices that it may use; a short batch does not reach the last ones.
        output_device: where it gathers.
        dim: the axis that is cut.
        site: the line that called it.
        started: seconds after the start of the recording.
        seconds: wall time of the whole call.
        scatter_seconds: time in the host that cutting the inputs took.
        replicate_seconds: the same of copying the model.
        forward_seconds: the same of the replicas' forward.
        gather_seconds: the same of joining the outputs.
        backward: gradients came back through it.
        with_grad: its outputs have a graph for backward.
    """

    number: int
    wrapper: str
    class_name: str
    device_ids: tuple[DeviceId, ...]
    output_device: DeviceId
    dim: int = 0
    site: Site | None = None
    started: float = 0.0
    seconds: Duration = 0.0
    scatter_seconds: Duration = 0.0
    replicate_seconds: Duration = 0.0
    forward_seconds: Duration = 0.0
    gather_seconds: Duration = 0.0
    backward: bool = False
    with_grad: bool = False


UNKNOWN = -1
"""The other end of a collective that has none, or of which nobody said so."""
POINT_TO_POINT = frozenset({"send", "recv"})
"""Kinds with two ends."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Processes that communicate.

    Attributes:
        name: torch's own, by which all its ranks know it.
        label: what it is called: `mesh_dp`, `default_pg`, else its name.
        ranks: in the order of the group.
    """

    name: str
    label: str
    ranks: tuple[Size, ...]


def group_label(name: str, description: str) -> str:
    """What a process group is called: as whoever made it described it, else as torch counts it."""
    if description not in ("", "undefined"):
        return description
    return name


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One collective, or one end of a message from rank to rank.

    Attributes:
        kind: `all_reduce`, `all_gather`, `reduce_scatter`, `send`, ...
        group: place of its process group among those of the recording.
        sequence: how many of this group this process has begun in the recording, this one included; messages are counted
            for each end and direction.
        bytes: that this rank gives; of `recv` that it takes.
        number: its place in the trace.
        module: path of the module whose hooks or `forward` asked for it, or whose parameters it carries; None outside.
        phase: part of the step.
        site: the user's line.
        by: the part of torch that asked: `FSDP`, `DTensor`, `DDP`, ...; "" for the user's own call.
        peer: of `send` and `recv` the rank at the other end.
    """

    kind: str
    group: Size
    sequence: Size
    bytes: Size
    number: int
    module: str | None
    phase: Phase
    site: Site | None
    by: str = ""
    peer: int = UNKNOWN
