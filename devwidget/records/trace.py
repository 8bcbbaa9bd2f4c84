"""Trace: what happened while code was recorded, in order."""

from __future__ import annotations

from dataclasses import dataclass
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
from devwidget.records.site import Phase as Phase
from devwidget.records.site import Site

Family = Literal[
    "operands", "kernel", "dtype", "meta", "device", "parallel", "io", "replica", "optimizer", "leaf", "checkpoint",
    "untrained", "promotion", "tie", "parameter", "dtensor",
]  # fmt: skip
Cause = Literal["explicit", "scatter", "replicate", "gather", "reduce", "healed", "hook"]


@dataclass(frozen=True, slots=True)
class Held:
    """Where a module or a namespace keeps a tensor.

    Attributes:
        module: path of the owning module; None if a global keeps it.
        name: its name there: `mask`, `anchors[0]`, `RARE`.
        how: `parameter`, `buffer`, `attribute` (of a module), `class attribute`, `optimizer state` or `global`.
        owner_class: class name of the owning module or optimizer.
        assigned: the user's line that stored it there, if found.
        shared: full paths under which other modules hold the same parameter.
        left_behind: for a parameter or buffer, the topmost module that is wholly on the same device; None for others.
        left_class: class name of that module.
        left_root: it is an outermost module, and there are several.
        built: the user's line that built it, if found in the source.
        model_devices: devices of the model's parameters and buffers, for a tensor that is neither.
        moves_along: the owner's class overrides `_apply`, so `.to` may move unregistered tensors.
        went: the user's line that moved the parameters that are on the right device, if known.
        is_split: the parameters and buffers of the owning module are on several devices, so that no line moved it as a whole.
        note: `of an unregistered Linear` for a tensor of an unregistered module; "".
        moved_away: the module that was left behind had been on the right device; its tensors' line moved it.
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
    is_split: bool = False
    moves_along: bool = False
    left_root: bool = False
    built: Site | None = None
    moved_away: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """The argument through which a tensor came in: of a module that is on another GPU as a whole.

    Attributes:
        site: the line that calls the module.
        name: source of the argument.
        module: source of the module.
    """

    site: Site | None
    name: str
    module: str


@dataclass(frozen=True, slots=True)
class Promotion:
    """An operator whose result has another dtype than its operands, without a cast.

    Attributes:
        site: the user's line.
        call: the torch function.
        dtype: dtype of the operands.
    """

    site: Site | None
    call: str
    dtype: str


MOST_LETTERS = 40
"""Maximum length of an expression that names a tensor in a sentence."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor argument of a faulty call.

    Attributes:
        argument: the operator's name for it (`input`, `weight`), or its position.
        expression: its name in the failing frame (`h0`, `self.mask`); "" if it has none.
        shape: shape in the call.
        dtype: dtype in the call, such as `float32`.
        device: device in the call.
        bytes: bytes of its elements.
        stray: True if this tensor is misplaced.
        birth: the user's line that decided where it is.
        birth_call: source of the call on that line that created or moved it, such as `torch.zeros(1, batch)`; "" if unknown.
        birth_op: the torch function behind it, such as `zeros`.
        birth_direct: True if the user's line calls that function itself, so that `device=` can be added there.
        birth_partner: name of a tensor on the right device that is available in that function; "".
        birth_partners: all such names, including tensors on `self`, best first.
        held: where it, or the tensor it was computed from, is kept.
        from_move: True if it was moved there (`.to`, `.cpu`), not created.
        ineffective: the user's line that requested a move and discarded its result.
        listed: the user's line that appended it to a list, for an item of one.
        forgotten: the line of its object's own `to` that moved another tensor of the object, but not this one.
        requires_grad: it requires grad.
        ineffective_method: `Graph.to` if this line moves an object that has the tensor; "" if it moves the tensor.
        source: its expression in the failing call, which may compute it: `x[0] + 1`; "".
        given: where it, or a tensor that it was computed from, came in as an argument.
        field: `batch` or `target` of `devwidget.trace` or the panel, if it is part of it or was computed from it; "".
        promotion: the promotion that changed its dtype, if any.
        computed: it was computed from the tensor that the line of birth placed.
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
    ineffective_method: str = ""
    listed: Site | None = None
    forgotten: Site | None = None
    requires_grad: bool = False
    computed: bool = False

    def __str__(self) -> str:
        """Return `h0 float32[1, 3, 7] cpu`."""
        if not self.dtype:  # the tensor was freed before it was recorded
            return f"{self.name} {self.device}"
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.shape))}] {self.device}"

    @property
    def name(self) -> str:
        """Return the name for a reader: the user's expression if it is short, else the operator's name."""
        few = self.source if len(self.source) <= MOST_LETTERS and "\n" not in self.source else ""
        return self.expression or few or self.argument


@dataclass(frozen=True, slots=True)
class Taken:
    """The variables of the outermost user function with a misplaced tensor in a variable, such as a loop's.

    Attributes:
        site: current line of that function.
        holding: the variables that hold the misplaced tensor.
        kinds: variables on the device of the misplaced tensor, with their kind: `tensor`, `dict`, `dict of more`, `list`,
            `tuple`, `list of dicts`, `object` for one with its own `to`.
        device: the function's expression for the right device; "".
        called: current line of its caller, which has no result yet.
    """

    site: Site | None
    holding: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    device: str = ""
    called: Site | None = None


@dataclass(frozen=True, slots=True)
class LeftOutDevice:
    """A call of a library function without its argument `device`: the user's line, the function, and its default."""

    site: Site
    function: str
    default: str


@dataclass(frozen=True, slots=True)
class Nearby:
    """Variables of the function that failed.

    Attributes:
        tuples: names of tuples whose items are arguments of the call, with their lengths.
        lists: names of lists whose items are arguments of the call.
        at_hand: variables of the failing line that are on the right device.
        taken: variables that got the misplaced tensor from a loader or similar.
        alike: further variables of the statement that are misplaced like it: tensors of the same module, or views of them.
        library: the call of a library that chose the device of the other tensors by default.
    """

    tuples: tuple[tuple[str, Size], ...] = ()
    lists: tuple[str, ...] = ()
    at_hand: tuple[str, ...] = ()
    taken: Taken | None = None
    alike: tuple[str, ...] = ()
    library: LeftOutDevice | None = None


NOTHING_NEARBY = Nearby()


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that failed, or would have failed without a repair.

    Attributes:
        number: its place in the trace.
        what: the family: `operands` (devices that do not mix), `kernel` (none for this device or dtype), `dtype`
            (types that do not mix), `meta` (no data), `device` (one that does not exist), `parallel` (a wrapper's
            placement), `io` (what enters or leaves a wrapper), `replica` (state that a replica lacks or loses),
            `optimizer`, `leaf`, `untrained` (a parameter that no optimizer can reach),
            `promotion` (float64 that spreads), `tie` (equal parameters trained apart), `checkpoint`,
            `parameter` (one was assigned a plain tensor), `dtensor` (plain tensors among DTensors).
        call: the torch function, such as `addmm` or `Tensor.to`.
        module: path of the innermost registered module running; "" for the root, None outside the model.
        phase: part of the step.
        site: the user's line that failed.
        error: `ErrorType: message` as PyTorch worded it.
        operands: the tensors of the call.
        target: the device that the misplaced tensors should have been on.
        healed: True if the call succeeded after moving the misplaced tensors.
        requested: for `what="device"`, the requested device.
        available: for `what="device"`, the devices that exist.
        expression: source of the failing call; for `what="device"`, of the wrong argument.
        birth: for faults without operands, the line that decided it.
        model_name: name of the root module in the user's code; "" if unknown.
        detail: details of its family; None for most.
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
    """One transfer, or several of one line folded (`count`).

    Attributes:
        source: the device copied from.
        target: the device copied to.
        bytes: bytes of one transfer.
        shape: shape of the tensor, or of the first one copied together.
        dtype: dtype of that tensor.
        module: path of the module that requested it, as for a fault.
        phase: part of the step.
        site: the user's line that requested it.
        cause: `explicit` (.to, .cuda, copy_), `scatter`, `replicate`, `gather`, `reduce`, `healed` or `hook`
            (one of accelerate, which serves `module`).
        seconds: host time of the call, not of the copy on a GPU; of the last one if folded. DataParallel makes all copies of a
            step in one call, whose time is divided by bytes.
        number: its place in the trace.
        count: number of transfers by this line.
        tensors: number of tensors in one transfer.
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
        """Return the bytes of all transfers."""
        return self.bytes * self.count


@dataclass(frozen=True, slots=True)
class Loading:
    """How a tensor from a `DataLoader` was copied to an accelerator.

    Attributes:
        loader: the user's line that created the loader; None if it is older than the recording, or a library created it.
        is_pinned: it was in pinned memory.
        is_asynchronous: the copy used `non_blocking=True`.
    """

    loader: Site | None
    is_pinned: bool
    is_asynchronous: bool


@dataclass(frozen=True, slots=True)
class UserMove:
    """A move that the user's line requested, or caused by writing into a tensor, with the history of its data.

    Attributes:
        number: its place in the trace.
        source: the device copied from.
        target: the device copied to.
        bytes: bytes of the tensor.
        shape: shape of the tensor.
        module: path of the module that requested it, as for a fault.
        phase: part of the step.
        site: the user's line that requested it.
        step: number of the forward pass it belongs to, -1 outside.
        chain: numbers of earlier transfers of the data, oldest first.
        computed: an operation read the data after the transfer.
        direct_from: number of the transfer that brought the data to `source`, if it was not used there; -1.
        held: owner of a tensor that is copied again at every call, None for activations and inputs.
        unsafe_read: the line that read an asynchronous copy on the host before any synchronisation.
        unsafe_module: path of the module that this line ran in.
        meant: reason in `devwidget.allow`, "" without one. An allowed transfer is not reported.
        into: the tensor on `target` that the line wrote it into, `buffer[i] = value`; None for a move.
        trains: what was written into `into` carries a gradient.
        is_index: implicit: a tensor on `target` was read or written at this index.
        loading: how a tensor of a `DataLoader` was copied to an accelerator; None for others.
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
    loading: Loading | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A line at which the host syncs for a value on a device, or for a size that depends on values; equal lines are folded.

    Attributes:
        call: `item`, `__bool__`, `tolist`, `numpy`, `nonzero`, `__getitem__` (a mask, a slice), `cpu` (a copy), `step` (the
            counter of an optimizer), ...
        device: device of the value.
        module: path of the module that syncs, as for a fault.
        phase: part of the step.
        site: the line that syncs, of the user or of a library; the user's line if torch itself syncs.
        library: library code makes the call.
        expression: source of the call.
        count: how often.
        meant: reason in `devwidget.allow`, "" without one.
        turns: number of intervals between calls of the model and of `backward` in which it synced; 0 if not counted.
        in_step: the model, its loss, `backward` or the optimizer syncs, not the program around them.
        called: the user's line that called the library that syncs; None if no user line called it.
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


@dataclass(frozen=True, slots=True)
class LoaderTime:
    """How long a line that takes batches waits for them. The first batches of a pass over a loader are left out.

    Attributes:
        site: the line that takes the batches.
        loader: the line that created the loader; None if it is not known.
        workers: number of worker processes; 0 if the loop itself makes the batches.
        batches: number of batches.
        seconds: time in `next(loader)`.
        loop_seconds: time from each batch to the next one, `next(loader)` included.
        longest: longest time of a batch in `next(loader)`.
        uses_gpu: its batches have tensors on a GPU.
    """

    site: Site | None
    loader: Site | None
    workers: Size
    batches: Size
    seconds: Duration
    loop_seconds: Duration
    longest: Duration = 0.0
    uses_gpu: bool = False


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
        seconds: host time from the end of the previous operator in this thread to the end of this one, summed up. Includes the
            Python code in between.
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
        inputs: devices of the input tensors, over all calls.
        outputs: devices of the output tensors, over all calls.
        calls: number of calls; replicas of one module count one each.
        seconds: wall time of all calls, children included.
        failed: whether one of the calls raised.
        number: place of the first call in the trace.
        started: seconds after the start of the recording, of the first call.
        replica: number of the DataParallel replica, -1 for the module itself.
        stopped: place in the trace at which the first call ended, -1 if unknown.
        input_shapes: shapes of the input tensors of the first call.
        output_shapes: shapes of its output tensors.
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
        findings: worst first.
        faults: the failing calls that findings are based on.
        moves: transfers between devices, in order.
        ops: operators below autograd, in order.
        modules: what ran, in order.
        replicas: the copies that DataParallel made, in order.
        crossings: transfers that the user's own lines requested, in order.
        waits: lines at which the host synced with a device, by first time.
        parallel: the calls of DataParallel modules that `replicas` belong to.
        memory: one curve for each device.
        error: `ErrorType: message` of the exception that ended the recording, "" if none did.
        failure: where it was raised; None if none was.
        checked: names of the rules that ran.
        not_checked: `rule: reason` for rules that could not decide or crashed.
        not_restored: changes of the step that could not be undone, each with its reason.
        virtual_gpus: how many virtual GPUs were active, 0 for none.
        seconds: wall time of the recording.
        collectives: collectives of this process, in order.
        groups: their process groups.
        samples: length of the batch, 0 if its tensors have several lengths or it is unknown.
        step_runs: number of runs of the step: one, and one more for each trial of its fixes; 0 outside of `trace`.
        steps: number of backward passes, or else of model calls; 0 if not counted.
        phases: parts of the step that ran, including those without an operator.
        noticed: side effects of the trials outside of the step, if they were requested anyway.
        loaders: how long loops over loaders wait for batches.
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
    collectives: tuple[CollectiveCall, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    step_runs: Size = 0
    noticed: tuple[str, ...] = ()
    steps: Size = 0
    phases: tuple[Phase, ...] = ()
    loaders: tuple[LoaderTime, ...] = ()
