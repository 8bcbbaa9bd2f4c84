"""What ranks said, made one cluster: whatever is equal on many of them is kept once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from devwidget.records.ranks.cluster import IN_A_ROW, NOWHERE, Cluster, Rank, RankPlacement, State
from devwidget.records.ranks.rank import Axis, Collective, GroupProgress, Holding, RankModel, RankModule, RankReport
from devwidget.records.ranks.traced_steps import merge_steps, runs_of
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
        groups: how far it has come, told in the same way.
        announced: what it wrote when it began to answer, or at the end of a recording.
        listens: somebody is there, or may be.
    """

    rank: int
    state: State
    report: RankReport | None = None
    host: str = ""
    pid: int = 0
    note: str = ""
    collective: Collective | None = None
    groups: tuple[GroupProgress, ...] = ()
    announced: RankReport | None = None
    listens: bool = True

    @property
    def last_word(self) -> RankReport | None:
        """The newest of what is known of it."""
        return self.report or self.announced

    @property
    def taken(self) -> float:
        """When that was said; 0 where nothing is known."""
        return self.last_word.taken if self.last_word is not None else 0.0


@dataclass(slots=True)
class _Table(Generic[_T]):
    """Different things, each once, by the order in which they came."""

    places: dict[_T, int] = field(default_factory=dict)

    def place(self, thing: _T) -> int:
        return self.places.setdefault(thing, len(self.places))


def merge(heard: Iterable[Heard], asked: float = 0.0) -> Cluster:
    """One cluster of what each rank said, and of those of the job that nobody heard of."""
    known, older = _select_newest_job({each.rank: each for each in heard})
    reports = [each.report for each in known.values() if each.report is not None]
    sizes = (each.last_word.world_size for each in known.values() if each.last_word is not None)
    size = max((*sizes, *(number + 1 for number in known)), default=0)
    everyone = [known.get(number) or Heard(number, "unknown", note=_NOT_HEARD) for number in range(size)]
    return replace(_Merging(reports, size, asked).make_cluster(everyone), older=runs_of(older))


_NOT_HEARD = Message("nothing of it is here: it runs elsewhere, has not begun to answer, or has ended")


def _select_newest_job(heard: dict[int, Heard]) -> tuple[dict[int, Heard], list[int]]:
    """Ranks of the job that has spoken last, and those of others of which only a file is left."""
    newest = max(heard.values(), key=lambda each: each.taken, default=Heard(0, "unknown")).last_word
    older = [
        rank
        for rank, each in heard.items()
        if newest is not None and not each.listens and each.last_word is not None and _job_of(each.last_word) != _job_of(newest)
    ]
    return {rank: each for rank, each in heard.items() if rank not in older}, older


def _job_of(report: RankReport) -> tuple[str, int]:
    return report.job, report.world_size


class _Merging:
    """The tables of one cluster while it is made."""

    def __init__(self, reports: list[RankReport], size: int, asked: float) -> None:
        self._asked = asked
        self._axes = _find_axes(reports, size)
        models = {id(report.model): report.model for report in reports if report.model is not None}  # equal ones are mostly one
        self._modules = _unite_modules(models.values())
        self._held: dict[int, int] = {}
        self._holdings: _Table[Holding] = _Table()
        self._stacks: _Table[tuple[Site, ...]] = _Table()
        self._placements: _Table[tuple[int, ...]] = _Table()

    def make_cluster(self, everyone: list[Heard]) -> Cluster:
        ranks = tuple(map(self._describe_rank, everyone))
        holdings = tuple(self._holdings.places)
        sizes = [sum(tensor.local_bytes for tensor in holding) for holding in holdings]
        placements = tuple(
            RankPlacement(
                runs_of(rank.number for rank in ranks if rank.placement == at),
                held,
                sum(sizes[each] for each in held if each != NOWHERE),
            )
            for held, at in self._placements.places.items()
        )
        modules, stacks = tuple(self._modules.values()), tuple(self._stacks.places)
        traced = merge_steps({each.rank: each.report.traced for each in everyone if each.report and each.report.traced})
        return Cluster(self._axes, ranks, modules, holdings, placements, stacks, asked=self._asked, traced=traced)

    def _describe_rank(self, heard: Heard) -> Rank:
        said = heard.report
        if said is None:
            quiet = Rank(heard.rank, heard.state, heard.host, heard.pid, note=heard.note)
            return replace(quiet, collective=heard.collective, groups=heard.groups)
        coordinates = said.coordinates if len(said.coordinates) == len(self._axes) else ()
        return Rank(
            heard.rank,
            heard.state,
            said.host,
            said.pid,
            coordinates or ((said.rank,) if len(self._axes) == 1 else ()),
            NOWHERE if said.model is None else self._find_placement(said.model),
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
            _join_notes(heard.note, said.note),
            said.stages,
        )

    def _find_placement(self, model: RankModel) -> int:
        """The column of a model; what each of its modules holds is looked up once for all ranks with the same record."""
        if id(model) not in self._held:
            places = [self._holdings.place(holding) for holding in model.holdings]
            own = {_module_key(module): places[at] for module, at in zip(model.modules, model.held, strict=True)}
            self._held[id(model)] = self._placements.place(tuple(own.get(name, NOWHERE) for name in self._modules))
        return self._held[id(model)]


def _find_axes(reports: list[RankReport], size: int) -> tuple[Axis, ...]:
    """The mesh with the most axes that any rank names; without one all ranks stand in a row."""
    named = max((report.axes for report in reports), key=len, default=())
    return named or (Axis(IN_A_ROW, size),)


def _unite_modules(models: Iterable[RankModel]) -> dict[tuple[str, str], RankModule]:
    """The modules of all ranks; one of another class at the same path is another module."""
    modules: dict[tuple[str, str], RankModule] = {}
    for model in models:
        for module in model.modules:
            modules.setdefault(_module_key(module), module)
    return modules


def _module_key(module: RankModule) -> tuple[str, str]:
    return module.path, module.class_name


def _join_notes(one: str, other: str) -> str:
    """Two notes as one message."""
    return Message("{first}; {second}", first=one, second=other) if one and other else one or other
