"""RankReport: the report of one process of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from devwidget.extras.ranks.records.traced_steps import TracedStep
from devwidget.records.device import DeviceId
from devwidget.records.schema.fields import SHARED, Duration, Length, Size
from devwidget.records.schema.record import Record
from devwidget.records.site import Site
from devwidget.records.snapshot import Role

OWN_DEVICE = "own"
"""Device of a tensor that is where its rank keeps most of its model: ranks of one kind differ in the index."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the device mesh, such as `dp` of 32 ranks."""

    name: str
    size: Size


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """One parameter or buffer on a rank.

    Attributes:
        name: Its name in its module.
        role: `parameter` or `buffer`.
        shape: Full shape; None while it is lazy.
        local_shape: Shape of the part on this rank.
        dtype: Dtype without the prefix `torch.`.
        bytes: Full size.
        local_bytes: Size of the part on this rank.
        device: `own`, or a device other than that of most of its rank's model.
        placement: `Shard(0) on dp, Replicate on tp`; "" for a plain tensor, which each rank has in full.
        requires_grad: Whether autograd computes a gradient for it.
        note: A further fact, such as `unsharded`.
    """

    name: str
    role: Role
    shape: tuple[Length, ...] | None
    local_shape: tuple[Length, ...] | None
    dtype: str
    bytes: Size
    local_bytes: Size
    device: str = OWN_DEVICE
    placement: str = ""
    requires_grad: bool = False
    note: str = ""

    @property
    def is_sharded(self) -> bool:
        """Whether a rank may hold less than the full tensor."""
        return "Shard(" in self.placement


Holding = tuple[LocalTensor, ...]
"""Tensors of one module on one rank, without its children."""


@dataclass(frozen=True, slots=True)
class RankModule:
    """One module of the tree.

    Attributes:
        path: Dotted path, "" for the root.
        class_name: Name of its class, without the package.
        wrapper: "" or its wrapper: `DistributedDataParallel`, `fully_shard`, ...
        defined: Where its class is defined; None for library classes.
    """

    path: str
    class_name: str
    wrapper: str = ""
    defined: Site | None = None


@dataclass(frozen=True, slots=True)
class RankModel:
    """The model of one rank.

    Attributes:
        modules: Modules in pre-order, the root first.
        holdings: Each distinct holding once.
        held: For each module its index in `holdings`.
    """

    modules: tuple[RankModule, ...]
    holdings: tuple[Holding, ...]
    held: tuple[Size, ...]

    @property
    def is_distributed(self) -> bool:
        """Whether it has a wrapper for several ranks, or a tensor with a placement."""
        placed = (tensor.placement for holding in self.holdings for tensor in holding)
        return any(module.wrapper for module in self.modules) or any(placed)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one device, from the allocator of one process.

    Attributes:
        device: The device; `cpu` for the memory of the process.
        allocated: Bytes in tensors.
        reserved: Bytes that the allocator keeps.
        peak: Maximum of `allocated`.
        card: UUID of the GPU; "" if unknown.
    """

    device: DeviceId
    allocated: Size
    reserved: Size = 0
    peak: Size = 0
    card: str = ""


class CollectivePlace(NamedTuple):
    """Identity of a collective: group, ranks, and number."""

    group: str
    ranks: tuple[int, ...]
    sequence: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that a rank has called, and in which it waits unless it is finished.

    Attributes:
        kind: `all_reduce`, `all_gather`, ...; "" if only the number is known.
        sequence: Number of collectives that the rank has called in this group, including this one.
        group: Name of the process group.
        ranks: Ranks of the group, in its order; () if unknown.
        bytes: Bytes that this rank passes.
        finished: Whether it is finished.
        seconds: Seconds since it was called; 0 if unknown.
        site: The user's line that waits for it.
    """

    kind: str
    sequence: Size
    group: str = ""
    ranks: tuple[Size, ...] = ()
    bytes: Size = 0
    finished: bool = False
    seconds: Duration = 0.0
    site: Site | None = None

    @property
    def place(self) -> CollectivePlace:
        """Identity of the collective."""
        return CollectivePlace(self.group, self.ranks, self.sequence)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Progress of one rank in one process group.

    Attributes:
        name: Name of the group, else its number in this process; "" if neither is known.
        begun: Number of collectives that it has called.
        finished: Number of finished ones.
        first: Lowest rank of the group, which distinguishes groups of one name; -1 if unknown.
        size: Number of ranks, 0 if unknown.
    """

    name: str
    begun: Size
    finished: Size
    first: int = -1
    size: Size = 0


@dataclass(frozen=True, slots=True)
class PastCollective:
    """One of the most recent collectives of a rank.

    Attributes:
        kind: `all_reduce`, `all_gather`, ...
        sequence: Its number in its group.
        group: Name of the process group.
        first: Lowest rank of the group; -1 if unknown.
        size: Number of ranks of the group; 0 if unknown.
        bytes: Bytes that this rank passes.
        begun: Seconds since the epoch, by the clock of its machine.
    """

    kind: str
    sequence: Size
    group: str
    first: int = -1
    size: Size = 0
    bytes: Size = 0
    begun: float = 0.0

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Group, its lowest rank, its size, and the number of the collective, which identify it."""
        return self.group, self.first, self.size, self.sequence

    def is_at(self, place: CollectivePlace) -> bool:
        """Return whether it has this identity."""
        return bool(place.ranks) and self.key == (place.group, place.ranks[0], len(place.ranks), place.sequence)


SettingKind = Literal["optimizer", "mode", "precision", "version", "environment", "random"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a rank other than its tensors.

    Attributes:
        kind: `optimizer`: class and groups. `mode`: train or eval. `precision`: torch's settings. `version`: of installed
            packages. `environment`: variables. `random`: seeds.
        name: What is set, such as `optimizer.lr`, a variable, or the path of a module.
        value: Value as text.
    """

    kind: SettingKind
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings of a rank in consecutive steps.

    Attributes:
        first: First of these steps, counted from 1.
        last: Last of them.
        settings: Settings at the end of each of them.
    """

    first: Size
    last: Size
    settings: tuple[Setting, ...]


How = Literal["raised", "terminated", "ended", "running"]


@dataclass(frozen=True, slots=True)
class LastWord:
    """State that a rank saved by itself, and why.

    Attributes:
        how: `raised`: an uncaught exception, or one that left the block of `serve`. `terminated`: a signal that ends the
            process. `ended`: its Python or that block ended without one. `running`: a regular report.
        error: Class and text of the exception, or the name of the signal.
        stack: The user's lines of the exception, innermost last.
        every: Seconds between regular reports.
    """

    how: How
    error: str = ""
    stack: tuple[Site, ...] = ()
    every: Duration = 0.0


@dataclass(frozen=True, slots=True)
class RankReport(Record):
    """The report of one process of a job.

    Attributes:
        rank: Its number in the job.
        world_size: Number of ranks.
        host: Name of its machine.
        pid: Its number on that machine.
        taken: Time of the report, in seconds since the epoch.
        axes: Axes of the device mesh, outermost first; () without one.
        coordinates: Coordinates in that mesh, one for each axis.
        device: Device of most of its model; None without a model.
        model: Its model; None if none was found.
        memory: One entry for each device that this process has used.
        step: Number of its optimizer steps; -1 if unknown.
        collective: Collective in which it waits; None if it waits in none or this is unknown.
        groups: Its progress in each process group.
        stack: Its main thread, innermost line last; library lines are left out, except the innermost.
        unsharded: Paths of modules whose parameters FSDP had gathered.
        checksums: `(path, checksum)` of compared parameters.
        note: A further fact, such as why no model was found.
        traced: The last step that it has recorded; None without one.
        stages: Pipeline stages that it runs; () if none was found.
        job: The launcher's name of the job, "" without one.
        announced: Whether it says only that the rank exists.
        machine: What distinguishes the machine and its process numbers from another of the same name; "" if unknown.
        run: Id that the ranks of this run agreed on through torch's store; "" without one.
        started: Start of its process, in ticks of that machine; 0 if unknown.
        last_word: Why it saved this report; None after a query or an announcement.
        settings: Settings that do not change during the run.
        steps: Settings of its last steps.
        ends: `(step, seconds since the epoch)` of its last steps.
        checksums_step: Step after which `checksums` were computed; -1 if unknown.
        last: Its most recent collectives, newest last.
    """

    rank: Size
    world_size: Size
    host: str
    pid: Size
    taken: float = 0.0
    axes: tuple[Axis, ...] = field(default=(), metadata=SHARED)
    coordinates: tuple[Size, ...] = ()
    device: DeviceId | None = None
    model: RankModel | None = field(default=None, metadata=SHARED)
    memory: tuple[RankMemory, ...] = ()
    step: int = -1
    collective: Collective | None = None
    groups: tuple[GroupProgress, ...] = ()
    stack: tuple[Site, ...] = field(default=(), metadata=SHARED)
    unsharded: tuple[str, ...] = ()
    checksums: tuple[tuple[str, str], ...] = ()
    note: str = ""
    traced: TracedStep | None = None
    stages: tuple[Size, ...] = ()
    job: str = field(default="", metadata=SHARED)
    announced: bool = False
    machine: str = field(default="", metadata=SHARED)
    run: str = field(default="", metadata=SHARED)
    started: Size = 0
    last_word: LastWord | None = None
    settings: tuple[Setting, ...] = field(default=(), metadata=SHARED)
    steps: tuple[StepSettings, ...] = field(default=(), metadata=SHARED)
    ends: tuple[tuple[Size, float], ...] = ()
    checksums_step: int = -1
    last: tuple[PastCollective, ...] = ()

    @property
    def waits(self) -> Collective | None:
        """Collective in which it waits; None if it waits in none."""
        if self.collective is None or self.collective.finished:
            return None
        return self.collective


def silent_rank(rank: int, pid: int = 0) -> RankReport:
    """Return the report of a rank that said nothing: its number, and maybe its process."""
    return RankReport(rank, rank + 1, "", pid, announced=True)
