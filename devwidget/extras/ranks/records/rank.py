"""RankReport: what one process of a job says of itself when it is asked."""

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
"""The device of a tensor that lives where its rank keeps most of its model: a class of ranks has no ordinals."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the device mesh, such as `dp` of 32 ranks."""

    name: str
    size: Size


@dataclass(frozen=True, slots=True)
class LocalTensor:
    """One parameter or buffer, as a rank holds it.

    Attributes:
        name: its name in its module.
        role: `parameter` or `buffer`.
        shape: of the whole; None while it is lazy.
        local_shape: of the part that this rank holds.
        dtype: torch's word without the prefix.
        bytes: of the whole.
        local_bytes: of the part that this rank holds.
        device: `own`, or the name of a device that is not where its rank keeps most of its model.
        placement: `Shard(0) on dp, Replicate on tp`; "" for a plain tensor, of which each rank has all.
        requires_grad: whether autograd collects a gradient for it.
        note: what a reader should know, such as `unsharded`.
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
        """A rank may hold less than all of it."""
        return "Shard(" in self.placement


Holding = tuple[LocalTensor, ...]
"""What one module itself holds on one rank, not its children."""


@dataclass(frozen=True, slots=True)
class RankModule:
    """One module of the tree.

    Attributes:
        path: dotted path, "" for the root.
        class_name: name of its class, without the package.
        wrapper: "" or what wraps it: `DistributedDataParallel`, `fully_shard`, ...
        defined: where its class is written; None for library classes.
        training: its training flag.
    """

    path: str
    class_name: str
    wrapper: str = ""
    defined: Site | None = None
    training: bool = True


@dataclass(frozen=True, slots=True)
class RankModel:
    """The model of one rank.

    Attributes:
        modules: in pre-order, the root first.
        holdings: each different holding once.
        held: for each module its place in `holdings`.
    """

    modules: tuple[RankModule, ...]
    holdings: tuple[Holding, ...]
    held: tuple[Size, ...]

    @property
    def is_distributed(self) -> bool:
        """Whether something of it was made for several ranks: a wrapper, or a tensor that says how it is placed."""
        placed = (tensor.placement for holding in self.holdings for tensor in holding)
        return any(module.wrapper for module in self.modules) or any(placed)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of one device, as the allocator of one process counts them.

    Attributes:
        device: which one; `cpu` for the memory of the process itself.
        allocated: in tensors.
        reserved: kept by the allocator.
        peak: the most that was ever allocated.
        total: of the whole device; 0 where that is not known.
        card: what names the card on its machine, its UUID where torch tells; "" where that is not known.
    """

    device: DeviceId
    allocated: Size
    reserved: Size = 0
    peak: Size = 0
    total: Size = 0
    card: str = ""


class CollectivePlace(NamedTuple):
    """Where ranks meet: a group, its ranks, and the number of the collective."""

    group: str
    ranks: tuple[int, ...]
    sequence: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that a rank has begun, and in which it waits unless it is finished.

    Attributes:
        kind: `all_reduce`, `all_gather`, ...; "" where only the number is known.
        sequence: how many the rank has begun in this group, this one included.
        group: name of the process group.
        ranks: that take part, in the order of the group; () where that is not known.
        bytes: that this rank gives.
        finished: it is over.
        seconds: since it was begun; 0 where that is not known.
        site: the user's line that waits for it.
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
        """Where its ranks meet."""
        return CollectivePlace(self.group, self.ranks, self.sequence)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far one rank has come in one process group.

    Attributes:
        name: what it is called, else its number in this process; "" where neither is known.
        begun: how many collectives it has begun.
        finished: how many of them are over.
        first: its lowest rank, which tells the groups of one name apart; -1 where that is not known.
        size: how many ranks it has, 0 where that is not known.
    """

    name: str
    begun: Size
    finished: Size
    first: int = -1
    size: Size = 0


@dataclass(frozen=True, slots=True)
class PastCollective:
    """One of the last collectives that a rank has begun.

    Attributes:
        kind: `all_reduce`, `all_gather`, ...
        sequence: its number in its group.
        group: name of the process group.
        first: the lowest rank of the group; -1 where that is not known.
        size: how many ranks the group has; 0 where that is not known.
        bytes: that this rank gives.
        begun: seconds since the epoch, by the clock of its machine.
    """

    kind: str
    sequence: Size
    group: str
    first: int = -1
    size: Size = 0
    bytes: Size = 0
    begun: float = 0.0

    def is_at(self, place: CollectivePlace) -> bool:
        """Whether its ranks met there."""
        if not place.ranks:
            return False
        there = place.group, place.ranks[0], len(place.ranks), place.sequence
        return (self.group, self.first, self.size, self.sequence) == there


SettingKind = Literal["optimizer", "mode", "precision", "version", "environment", "random"]


@dataclass(frozen=True, slots=True)
class Setting:
    """Something beside tensors by which a rank trains.

    Attributes:
        kind: `optimizer`: its class and groups. `mode`: train or eval. `precision`: how torch computes. `version`: of what is
            installed. `environment`: variables. `random`: where random numbers begin.
        name: what is set, such as `optimizer.lr`, a variable, or the path of a module.
        value: as text.
    """

    kind: SettingKind
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class StepSettings:
    """By what a rank has trained from one step to another, both included.

    Attributes:
        first: the first of these steps, counted from 1.
        last: the last.
        settings: that held at the end of each of them.
    """

    first: Size
    last: Size
    settings: tuple[Setting, ...]


How = Literal["raised", "terminated", "ended", "running"]


@dataclass(frozen=True, slots=True)
class LastWord:
    """Why a rank has written what it held, without being asked.

    Attributes:
        how: `raised`: an exception that nothing caught, or that left the block of `serve`. `terminated`: a signal that ends a
            process. `ended`: its Python, or that block, came to its end without one. `running`: it writes from time to time.
        error: class and text of the exception, or the name of the signal.
        stack: the user's lines that the exception came through, the innermost last.
        every: seconds between two of those that are written from time to time.
    """

    how: How
    error: str = ""
    stack: tuple[Site, ...] = ()
    every: Duration = 0.0


@dataclass(frozen=True, slots=True)
class RankReport(Record):
    """One process of a job, as it says itself.

    Attributes:
        rank: its number in the job.
        world_size: how many there are.
        host: name of its machine.
        pid: its number on that machine.
        local_rank: its number among the ranks of that machine, -1 where nobody has said.
        taken: seconds since the epoch.
        axes: of the device mesh, outermost first; () without one.
        coordinates: in that mesh, one for each axis.
        device: where it keeps most of its model; None without a model.
        model: what it trains; None where none was found.
        memory: one entry for each device that this process has used.
        step: how many steps its optimizers have taken; -1 where nobody has counted.
        collective: the one in which it waits; None where it waits in none or nobody counts them.
        groups: how far it has come in each process group.
        stack: its main thread, the innermost line last; lines of libraries are left out, but for the innermost.
        unsharded: paths of modules whose parameters FSDP had gathered.
        checksums: `(path, checksum)` of what was asked to be compared.
        optimizer_bytes: of the states of its optimizer.
        note: what a reader should know, such as why no model was found.
        traced: the step that it has recorded last; None if it has recorded none.
        stages: of a pipeline that it runs; () where none was found.
        job: what its launcher calls the job, "" if nothing does.
        announced: it says that there is such a rank, and nothing else.
        machine: what tells the machine, and the numbers of its processes, from those of another of the same name; "" where
            nothing does.
        run: what the ranks of this run have agreed on by the store of torch; "" if there was none.
        started: when its process began, in ticks of that machine; 0 where that is not known.
        last_word: why it has written this; None if it was asked, or announced.
        settings: by what it trains from the first step to the last, and where it runs.
        steps: by what it has trained in its last steps.
        ends: `(step, seconds since the epoch)` of its last steps.
        checksums_step: after which step `checksums` were taken; -1 where that is not known.
        last: collectives that it has begun, the newest last.
    """

    rank: Size
    world_size: Size
    host: str
    pid: Size
    local_rank: int = -1
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
    optimizer_bytes: Size = 0
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
    def has_answered(self) -> bool:
        """Whether it says what it holds and does, not only that there is such a rank."""
        return not self.announced

    @property
    def waits(self) -> Collective | None:
        """The collective in which it waits; None where it waits in none."""
        if self.collective is None or self.collective.finished:
            return None
        return self.collective


def silent_rank(rank: int, pid: int = 0) -> RankReport:
    """What is known of a rank that has said nothing: that there is such a number, and maybe its process."""
    return RankReport(rank, rank + 1, "", pid, announced=True)
