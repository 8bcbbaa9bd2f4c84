"""What runs in parallel: calls of nn.DataParallel with their replicas, and collectives between processes."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import Duration, Length, Size
from devwidget.records.site import Phase, Site


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor that a replica got or returned.

    Attributes:
        name: its name in the signature or container: `input`, `args[1]`, `labels`, `batch['mask']`, `output['logits']`.
        shape: shape of this replica's part.
        dtype: dtype of this replica's part.
        bytes: bytes of this replica's part.
        start: where it begins in the whole, along the split axis.
        stop: where it ends.
        source: device of the whole for an input, of the replica for an output.
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
        output_bytes: bytes of its outputs, which are gathered afterwards.
        peak_bytes: `max_memory_allocated` of its device at the end of the call: the highest since it was last reset. 0 when
            unknown.
        seconds: wall time of its forward.
        gathered_on: where the outputs were collected; None if they never were.
        call: number of the DataParallelCall.
        buffer_bytes: how many of `parameter_bytes` are buffers.
        gradient_bytes: bytes of gradients reduced from it to the source in backward.
        started: seconds after the start of the recording.
        thread: name of the thread that ran it; "" if it never ran.
        failed: its forward raised.
        inputs: its part of each input tensor.
        outputs: its part of each output tensor.
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
        dim: the split axis.
        site: the line that called it.
        started: seconds after the start of the recording.
        seconds: wall time of the whole call.
        scatter_seconds: host time of splitting the inputs.
        replicate_seconds: host time of copying the model.
        forward_seconds: host time of the replicas' forward.
        gather_seconds: host time of gathering the outputs.
        backward: backward ran through it.
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
"""The peer of a collective, which has none, or of a message whose peer is unknown."""
POINT_TO_POINT = frozenset({"send", "recv"})
"""Kinds with two ends."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Processes that communicate.

    Attributes:
        name: torch's name, the same on all its ranks.
        label: its description: `mesh_dp`, `default_pg`, else its name.
        ranks: in the order of the group.
    """

    name: str
    label: str
    ranks: tuple[Size, ...]


def group_label(name: str, description: str) -> str:
    """Return the label of a process group: its description, else torch's number."""
    if description not in ("", "undefined"):
        return description
    return name


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One collective, or one end of a message from rank to rank.

    Attributes:
        kind: `all_reduce`, `all_gather`, `reduce_scatter`, `send`, ...
        group: index of its process group in the recording.
        sequence: how many of this group this process has begun in the recording, including this one. Messages are counted per
            peer and direction.
        bytes: bytes that this rank sends; for `recv`, receives.
        number: its place in the trace.
        module: path of the module whose hooks or `forward` requested it, or whose parameters it contains; None outside.
        phase: part of the step.
        site: the user's line.
        by: the part of torch that requested it: `FSDP`, `DTensor`, `DDP`, ...; "" for the user's own call.
        peer: for `send` and `recv`, the rank at the other end.
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
