"""What ranks said, made one cluster: whatever is equal on many of them is kept once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from devwidget.records.ranks.cluster import NOWHERE, Cluster, Placement, Rank, State
from devwidget.records.ranks.rank import Axis, Collective, Holding, RankModel, RankModule, RankReport
from devwidget.records.ranks.runs import runs_of
from devwidget.records.ranks.steps import job_of
from devwidget.records.schema.message import Message
from devwidget.records.site import Site

_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of asking one rank.

    Attributes:
        rank: its number.
        state: how it was.
        report: what it said; None where it said nothing.
        host: name of its machine, where it has not said.
        pid: its number there, where it has not said.
        note: why it is in this state.
        collective: the one in which it waits, told by torch alone where Python said nothing.
    """

    rank: int
    state: State
    report: RankReport | None = None
    host: str = ""
    pid: int = 0
    note: str = ""
    collective: Collective | None = None


@dataclass(slots=True)
class _Table(Generic[_T]):
    """Different things, each once, by the order in which they came."""

    places: dict[_T, int] = field(default_factory=dict)

    def place(self, thing: _T) -> int:
        return self.places.setdefault(thing, len(self.places))


def merge(heard: Iterable[Heard], asked: float = 0.0) -> Cluster:
    """One cluster of what each rank said, and of those of the job that nobody heard of."""
    known = {each.rank: each for each in heard}
    reports = [each.report for each in known.values() if each.report is not None]
    size = max((*(report.world_size for report in reports), *(number + 1 for number in known)), default=0)
    everyone = [known.get(number) or Heard(number, "missing") for number in range(size)]
    return _Merging(reports, size, asked).cluster(everyone)


class _Merging:
    """The tables of one cluster while it is made."""

    def __init__(self, reports: list[RankReport], size: int, asked: float) -> None:
        self._asked = asked
        self._axes = _axes(reports, size)
        models = {id(report.model): report.model for report in reports if report.model is not None}  # equal ones are mostly one
        self._modules = _union(models.values())
        self._held: dict[int, int] = {}
        self._holdings: _Table[Holding] = _Table()
        self._stacks: _Table[tuple[Site, ...]] = _Table()
        self._placements: _Table[tuple[int, ...]] = _Table()

    def cluster(self, everyone: list[Heard]) -> Cluster:
        ranks = tuple(map(self._rank, everyone))
        holdings = tuple(self._holdings.places)
        sizes = [sum(tensor.local_bytes for tensor in holding) for holding in holdings]
        placements = tuple(
            Placement(
                runs_of(rank.number for rank in ranks if rank.placement == at),
                held,
                sum(sizes[each] for each in held if each != NOWHERE),
            )
            for held, at in self._placements.places.items()
        )
        modules, stacks = tuple(self._modules.values()), tuple(self._stacks.places)
        traced = job_of({each.rank: each.report.traced for each in everyone if each.report and each.report.traced})
        return Cluster(self._axes, ranks, modules, holdings, placements, stacks, asked=self._asked, traced=traced)

    def _rank(self, heard: Heard) -> Rank:
        said = heard.report
        if said is None:
            return Rank(heard.rank, heard.state, heard.host, heard.pid, collective=heard.collective, note=heard.note)
        coordinates = said.coordinates if len(said.coordinates) == len(self._axes) else ()
        return Rank(
            heard.rank,
            heard.state,
            said.host,
            said.pid,
            coordinates or ((said.rank,) if len(self._axes) == 1 else ()),
            NOWHERE if said.model is None else self._placement(said.model),
            said.device,
            said.local_rank,
            max(0.0, self._asked - said.taken) if self._asked else 0.0,
            said.step,
            said.memory,
            said.collective,
            said.groups,
            self._stacks.place(said.stack) if said.stack else NOWHERE,
            said.unsharded,
            said.checksums,
            _both(heard.note, said.note),
        )

    def _placement(self, model: RankModel) -> int:
        """The column of a model; what each of its modules holds is looked up once for all ranks with the same record."""
        if id(model) not in self._held:
            places = [self._holdings.place(holding) for holding in model.holdings]
            own = {_name(module): places[at] for module, at in zip(model.modules, model.held, strict=True)}
            self._held[id(model)] = self._placements.place(tuple(own.get(name, NOWHERE) for name in self._modules))
        return self._held[id(model)]


def _axes(reports: list[RankReport], size: int) -> tuple[Axis, ...]:
    """The mesh with the most axes that any rank names; without one all ranks stand in a row."""
    named = max((report.axes for report in reports), key=len, default=())
    return named or (Axis("rank", size),)


def _union(models: Iterable[RankModel]) -> dict[tuple[str, str], RankModule]:
    """The modules of all ranks; one of another class at the same path is another module."""
    modules: dict[tuple[str, str], RankModule] = {}
    for model in models:
        for module in model.modules:
            modules.setdefault(_name(module), module)
    return modules


def _name(module: RankModule) -> tuple[str, str]:
    return module.path, module.class_name


def _both(one: str, other: str) -> str:
    """Two notes as one message."""
    return Message("{first}; {second}", first=one, second=other) if one and other else one or other
