"""Trace: what happened while code was recorded, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from devwidget.records.device import DeviceId
from devwidget.records.explanation import Failure
from devwidget.records.fault_details import FaultDetail
from devwidget.records.finding import Finding
from devwidget.records.memory import MemoryCurve
from devwidget.records.parallel import CollectiveCall, DataParallelCall, ProcessGroup, Replica
from devwidget.records.schema.fields import Duration, Length, Size
from devwidget.records.schema.record import Record
from devwidget.records.site import PHASES as PHASES
from devwidget.records.site import LibraryLine, Site
from devwidget.records.site import Phase as Phase

Family = Literal[
    "operands", "kernel", "dtype", "meta", "device", "parallel", "io", "replica", "optimizer", "leaf", "checkpoint",
    "untrained", "promotion", "tie",
]  # fmt: skip
Cause = Literal["explicit", "scatter", "replicate", "gather", "reduce", "healed", "hook"]


@dataclass(frozen=True, slots=True)
class Held:
    """Where a module or a namespace keeps a tensor.

    Attributes:
        module: path of the owning module; None if a global keeps it.
        name: how the owner calls it: `mask`, `anchors[0]`, `RARE`.
        how: `parameter`, `buffer`, `attribute` (of a module), `class attribute`, `optimizer state` or `global`.
        owner_class: class name of the owning module or optimizer.
        assigned: the user's line that stored it there, if it can be found.
        shared: full paths under which other modules hold the same parameter.
        left_behind: for a parameter or buffer, the topmost module that is wholly on the same device; None for others.
        left_class: class name of that module.
        left_root: it is the outermost one, of a program with several.
        built: the user's line that built it, if the source tells.
        model_devices: where the parameters and buffers of the model are, for what is none of them.
        moves_along: the class of the owner has an `_apply` of its own, so that `.to` may take along what is not registered.
        went: the user's line that moved those of them that are where the tensor is wanted, if it is known.
        note: `of an unregistered Linear` for a tensor of a module that nobody registered; "".
    """

    module: str | None
    name: str
    how: str
    owner_class: str = ""
    assigned: Site | None = None
    shared: tuple[str, ...] = ()
    left_behind: str | None = None
    note: str = ""
    left_class: str = ""
    model_devices: tuple[DeviceId, ...] = ()
    went: Site | None = None
    moves_along: bool = False
    left_root: bool = False
    built: Site | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor where it came in: an argument of the outermost function of the user that has one on the right device, too.

    Attributes:
        site: where that function stood; where its caller stood, for a module.
        name: of the argument; its source, where a caller hands it to a module.
        beside: names of arguments, or of variables there, that are on the right device.
        kind: `module` for what a caller hands to a module that is on another GPU as a whole, which is then `beside`; "".
    """

    site: Site | None
    name: str
    beside: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Promotion:
    """An operator whose result has another dtype than what it was computed from, though nobody cast it.

    Attributes:
        site: the user's line.
        call: the torch function.
        dtype: of what it was computed from.
    """

    site: Site | None
    call: str
    dtype: str


MOST_LETTERS = 40
"""Of an expression that names a tensor in a sentence."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor that a faulty call was given.

    Attributes:
        argument: the operator's name for it (`input`, `weight`), or its position.
        expression: how the user's code names it in the failing frame (`h0`, `self.mask`); "" if it has no name there.
        shape: as the call saw it.
        dtype: as the call saw it, such as `float32`.
        device: as the call saw it.
        bytes: bytes of its elements.
        stray: True if this is the tensor in the wrong place.
        birth: the user's line that decided where it is.
        birth_call: source of the call on that line that made or moved it, such as `torch.zeros(1, batch)`; "" if unknown.
        birth_op: the torch function behind it, such as `zeros`.
        birth_direct: True if the user's line calls that function itself, so that `device=` can be added there.
        birth_partner: name of a tensor on the right device, at hand in the birth's function; "".
        birth_partners: all such names, those of tensors that `self` keeps too, the best first.
        held: where it, or the tensor it was computed from, is kept.
        from_move: True if the birth is a move (`.to`, `.cpu`), not a factory.
        ineffective: the user's line that asked for a move and threw its result away.
        source: what the failing call's own text writes for it, which may compute it: `x[0] + 1`; "".
        given: where it, or what it was computed from, came in as an argument.
        field: `batch` or `target` of `devwidget.trace` or the panel, if it is part of that, or was computed from it; "".
        promotion: what gave it its dtype, if that was an operator that was given another.
    """

    argument: str
    expression: str
    shape: tuple[Length, ...]
    dtype: str
    device: DeviceId
    bytes: Size
    stray: bool = False
    birth: Site | None = None
    birth_call: str = ""
    birth_op: str = ""
    birth_direct: bool = False
    birth_partner: str = ""
    held: Held | None = None
    from_move: bool = False
    ineffective: Site | None = None
    source: str = ""
    birth_partners: tuple[str, ...] = ()
    given: Given | None = None
    field: str = ""
    promotion: Promotion | None = None

    @property
    def name(self) -> str:
        """What the reader knows it by: the user's words for it if they are few, else the operator's."""
        few = self.source if len(self.source) <= MOST_LETTERS and "\n" not in self.source else ""
        return self.expression or few or self.argument


@dataclass(frozen=True, slots=True)
class Taken:
    """The variables of the outermost function of the user that has a stray tensor in one, as a loop took them.

    Attributes:
        site: where that function stood.
        holding: the variables that have the stray.
        kinds: variables that are where the stray is, with what they are: `tensor`, `dict`, `dict of more`, `list`, `tuple`,
            `list of dicts`, `object` for one with a `to` of its own.
        device: how the function writes the right device; "".
        called: where its caller stood, which has not got a result yet.
    """

    site: Site | None
    holding: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    device: str = ""
    called: Site | None = None


@dataclass(frozen=True, slots=True)
class Nearby:
    """What the function that failed has in its variables.

    Attributes:
        tuples: names of tuples whose items the call was given, with their lengths.
        at_hand: variables of the failing line that are on the right device.
        taken: those that took the stray from a loader or the like.
    """

    tuples: tuple[tuple[str, Size], ...] = ()
    at_hand: tuple[str, ...] = ()
    taken: Taken | None = None


NOTHING_NEARBY = Nearby()


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that failed, or would have failed without healing.

    Attributes:
        number: its place in the trace.
        what: the family: `operands` (devices that do not mix), `kernel` (none for this device or dtype), `dtype`
            (types that do not mix), `meta` (no data), `device` (one that does not exist), `parallel` (a wrapper's
            placement), `io` (what enters or leaves a wrapper), `replica` (state that a replica lacks or loses),
            `optimizer`, `leaf`, `untrained` (a parameter that no optimizer can reach),
            `promotion` (float64 that spreads), `tie` (equal parameters trained apart), `checkpoint`.
        call: the torch function, such as `addmm` or `Tensor.to`.
        module: path of the innermost registered module running; "" for the root, None outside the model.
        phase: part of the step.
        site: the user's line that failed.
        error: `ErrorType: message` as PyTorch worded it.
        operands: the tensors of the call.
        target: where the strays should have been.
        healed: True if the call was repeated with the strays moved, and succeeded.
        requested: for `what="device"`, the device asked for.
        available: for `what="device"`, the devices that exist.
        expression: source of the failing call; for `what="device"` of the argument at fault.
        birth: for faults without operands, the line that decided it.
        model_name: how the user's code calls the root module; "" if unknown.
        detail: what is known of faults of its family only; None for most, and in files of older versions.
        nearby: variables of the failing function.
        in_replica: it failed in a replica, whose device differs from call to call.
    """

    number: int
    what: Family
    call: str
    module: str | None
    phase: Phase
    site: Site | None
    error: str
    operands: tuple[Operand, ...] = ()
    target: DeviceId | None = None
    healed: bool = False
    requested: str = ""
    available: tuple[str, ...] = ()
    expression: str = ""
    birth: Site | None = None
    model_name: str = ""
    detail: FaultDetail | None = None
    nearby: Nearby = NOTHING_NEARBY
    in_replica: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """One crossing, or several of one line folded (`count`).

    Attributes:
        source: the device that it left.
        target: the device that it went to.
        bytes: bytes of one crossing.
        shape: of the tensor, of the first one if several went together.
        dtype: of that tensor.
        module: path of the module that asked for it, as for a fault.
        phase: part of the step.
        site: the user's line that asked for it.
        cause: `explicit` (.to, .cuda, copy_), `scatter`, `replicate`, `gather`, `reduce`, `healed` or `hook`
            (one of accelerate, which serves `module`).
        seconds: time of the call in the host, not of the copy itself on a GPU; of the last one if folded. A step of
            DataParallel makes all its copies in one call, whose time is shared out by bytes.
        number: its place in the trace.
        count: how often this line did this.
        tensors: how many went together in one crossing.
    """

    source: DeviceId
    target: DeviceId
    bytes: Size
    shape: tuple[Length, ...]
    dtype: str
    module: str | None
    phase: Phase
    site: Site | None
    cause: Cause
    seconds: Duration = 0.0
    number: int = 0
    count: Size = 1
    tensors: Size = 1

    @property
    def all_bytes(self) -> int:
        """Bytes of all crossings."""
        return self.bytes * self.count


@dataclass(frozen=True, slots=True)
class Loading:
    """How a tensor that a `DataLoader` handed out was copied to an accelerator.

    Attributes:
        loader: the user's line that made the loader; None where it is older than the recording, or a library made it.
        is_pinned: it lay in pinned memory.
        is_asynchronous: the copy was asked for with `non_blocking=True`.
    """

    loader: Site | None
    is_pinned: bool
    is_asynchronous: bool


@dataclass(frozen=True, slots=True)
class UserMove:
    """A move that the user's own line asked for, or caused by writing into a tensor, with what its data had been through.

    Attributes:
        number: its place in the trace.
        source: the device that it left.
        target: the device that it went to.
        bytes: of the tensor.
        shape: of the tensor.
        module: path of the module that asked for it, as for a fault.
        phase: part of the step.
        site: the user's line that asked for it.
        step: number of the forward pass it belongs to, -1 outside.
        chain: numbers of the crossings that the data had behind it, oldest first.
        computed: an operation read the data after it had arrived.
        direct_from: number of the crossing that brought the data to `source`, if nothing was done with it there; -1.
        held: who keeps the tensor that is copied anew at every call, None for activations and inputs.
        unsafe_read: the line that read an asynchronous copy on the host before any synchronisation.
        unsafe_module: path of the module that this line, or the one that overwrote it, ran in.
        overwritten: the line that wrote into pinned memory before any synchronisation, while an asynchronous copy read it.
        meant: why the author allows it (`devwidget.allow`), "" if nobody said so; what is meant is not reported.
        into: the tensor on `target` that the line wrote it into, `buffer[i] = value`; None for a move.
        trains: what was written into `into` carries a gradient.
        is_index: nobody asked for it: a tensor on `target` was read or written at this index.
        loading: how a tensor of a `DataLoader` was copied to an accelerator; None for all else.
    """

    number: int
    source: DeviceId
    target: DeviceId
    bytes: Size
    shape: tuple[Length, ...]
    module: str | None
    phase: Phase
    site: Site | None
    step: int
    chain: tuple[int, ...] = ()
    computed: bool = False
    direct_from: int = -1
    held: Held | None = None
    unsafe_read: Site | None = None
    unsafe_module: str | None = None
    meant: str = ""
    into: Operand | None = None
    trains: bool = False
    is_index: bool = False
    overwritten: Site | None = None
    loading: Loading | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A line at which the host waits for a value of a device, or for a size that depends on values, folded over equal lines.

    Attributes:
        call: `item`, `__bool__`, `tolist`, `numpy`, `nonzero`, `__getitem__` (a mask, a slice), `cpu` (a copy), ...
        device: whose value.
        module: path of the module that waits, as for a fault.
        phase: part of the step.
        site: the line that waits, of the user's or of a library; the user's line for what torch itself waits for.
        library: library code makes the call.
        expression: source of the call.
        count: how often.
        meant: why the author allows it, "" if nobody said so.
        turns: between how many calls of the model and of `backward` it waited; 0 if nobody counted.
        in_step: the model, its loss, `backward` or the optimizer waits, and not the program around them.
        called: the user's line that called the library that waits; None where it was no line of the user's.
    """

    call: str
    device: DeviceId
    module: str | None
    phase: Phase
    site: Site | None
    library: bool
    expression: str = ""
    count: Size = 1
    meant: str = ""
    turns: Size = 0
    in_step: bool = True
    called: Site | None = None

    @property
    def asked_by(self) -> Site | None:
        """The user's line behind it, with that of the library that waits; the line itself where no line of theirs is known."""
        if self.called is None or self.site is None:
            return self.site
        return replace(self.called, library=LibraryLine(self.site.file, self.site.line, self.site.text))


@dataclass(frozen=True, slots=True)
class DeviceComparison:
    """A comparison in the program that gives the same for every device that it can be about.

    Attributes:
        site: the line that compares.
        expression: source of the comparison.
        subject: source of what is compared with the name of a device.
        value: what that was: a `torch.device` as text, or the text that it was.
        kept: which of the two.
        gives: what the comparison gives.
    """

    site: Site
    expression: str
    subject: str
    value: str
    kept: Literal["device", "text"]
    gives: bool


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """Copies between two GPUs by one line, whose checksums were compared at both ends.

    Attributes:
        number: place of the first one in the trace.
        source: the GPU that they left.
        target: the GPU that they went to.
        bytes: of one copy, as it arrived.
        module: path of the module that asked for it, as for a fault.
        phase: part of the step.
        site: the user's line that asked for it.
        count: how many were compared.
        wrong: how many arrived changed.
        peer_access: whether the driver lets these two copy directly.
    """

    number: int
    source: DeviceId
    target: DeviceId
    bytes: Size
    module: str | None
    phase: Phase
    site: Site | None
    count: Size
    wrong: Size = 0
    peer_access: Literal["yes", "no", "unknown"] = "unknown"


@dataclass(frozen=True, slots=True)
class OpEvent:
    """An operator below autograd, folded over equal (name, module, phase, line, devices).

    Attributes:
        name: aten's name, such as `addmm`.
        inputs: devices of its tensors, each once.
        output: device of its first result, None without one.
        count: how often.
        number: place of the first one in the trace.
        started: seconds after the start of the recording, of the first one.
        shape: of its first result, the first time.
        seconds: time of the host from the end of the operator before in this thread to the end of this one, over all of them:
            what Python did in between is in it.
    """

    name: str
    module: str | None
    phase: Phase
    site: Site | None
    inputs: tuple[DeviceId, ...]
    output: DeviceId | None
    count: Size = 1
    number: int = 0
    started: float = 0.0
    shape: tuple[Length, ...] = ()
    seconds: Duration = 0.0


@dataclass(frozen=True, slots=True)
class ModuleEvent:
    """The calls of one module.

    Attributes:
        path: which module.
        class_name: its class.
        inputs: devices of the tensors that went in, over all calls.
        outputs: devices of the tensors that came out, over all calls.
        calls: how often it ran; replicas of one module count one each.
        seconds: wall time of all calls, children included.
        failed: whether one of the calls raised.
        number: place of the first call in the trace.
        started: seconds after the start of the recording, of the first call.
        replica: number of the DataParallel replica, -1 for the module itself.
        stopped: place in the trace at which the first call ended, -1 where that is not known.
        input_shapes: of the tensors that went into the first call.
        output_shapes: of those that came out of it.
    """

    path: str
    class_name: str
    inputs: tuple[DeviceId, ...]
    outputs: tuple[DeviceId, ...]
    calls: Size
    seconds: Duration
    failed: bool = False
    number: int = 0
    started: float = 0.0
    replica: int = -1
    stopped: int = -1
    input_shapes: tuple[tuple[Length, ...], ...] = ()
    output_shapes: tuple[tuple[Length, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Trace(Record):
    """One recording.

    Attributes:
        findings: what is wrong, worst first.
        faults: the failing calls that findings were drawn from.
        moves: data that went from device to device, in order.
        ops: operators below autograd, in order.
        modules: what ran, in order.
        replicas: the copies that DataParallel made, in order.
        crossings: the moves that the user's own lines asked for, in order.
        waits: lines at which the host waited for a device, in order of their first time.
        parallel: the calls of DataParallel modules that `replicas` belong to.
        memory: one curve for each device.
        copy_checks: copies between GPUs that were verified (`verify_hops`), in order.
        error: `ErrorType: message` of the exception that ended the recording, "" if none did.
        failure: where it was raised; None if none was, or in files of older versions.
        checked: names of the rules that ran.
        not_checked: `rule: reason` for rules that could not decide or crashed.
        not_restored: what the step changed and could not be put back, each with its reason.
        virtual_gpus: how many virtual GPUs were active, 0 for none.
        seconds: wall time of the recording.
        collectives: what this process began with others, in order.
        groups: the process groups of them.
        samples: length of the batch, 0 where its tensors have several lengths or it is not known.
        step_runs: how often the step ran: once, and once more for each trial of its fixes; 0 for what is no step of `trace`.
        steps: how often the program went back, or else called its model; 0 if nobody counted.
        comparisons: those of the program's devices that say the same for each.
        phases: parts of the step that ran, also those in which no operator was seen; () in files of older versions.
        noticed: why these trials may have been noticed outside of the step, where they were asked for all the same.
    """

    findings: tuple[Finding, ...] = ()
    faults: tuple[Fault, ...] = ()
    moves: tuple[Move, ...] = ()
    ops: tuple[OpEvent, ...] = ()
    modules: tuple[ModuleEvent, ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    replicas: tuple[Replica, ...] = ()
    crossings: tuple[UserMove, ...] = ()
    waits: tuple[Wait, ...] = ()
    error: str = ""
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    virtual_gpus: Size = 0
    seconds: Duration = 0.0
    parallel: tuple[DataParallelCall, ...] = ()
    not_restored: tuple[str, ...] = ()
    failure: Failure | None = None
    samples: Size = 0
    copy_checks: tuple[CopyCheck, ...] = ()
    collectives: tuple[CollectiveCall, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    step_runs: Size = 0
    noticed: tuple[str, ...] = ()
    steps: Size = 0
    comparisons: tuple[DeviceComparison, ...] = ()
    phases: tuple[Phase, ...] = ()
