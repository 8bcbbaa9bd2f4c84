"""What ranks said, made one cluster: whatever is equal on many of them is kept once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from devwidget.extras.ranks.records.arrivals import find_arrivals
from devwidget.extras.ranks.records.cluster import GONE, IN_A_ROW, NOWHERE, Cluster, Rank, RankPlacement, State
from devwidget.extras.ranks.records.rank import (
    Axis,
    Collective,
    GroupProgress,
    Holding,
    RankModel,
    RankModule,
    RankReport,
    Setting,
    StepSettings,
)
from devwidget.extras.ranks.records.traced_steps import TracedStep, merge_steps, split_steps
from devwidget.records.runs import runs_of
from devwidget.records.schema.fields import Size
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
        hangs: it waits in a collective, or waited in it at its end, for longer than is usual or for a rank that cannot come.
    """

    rank: Size
    state: State
    report: RankReport | None = None
    host: str = ""
    pid: int = 0
    note: str = ""
    collective: Collective | None = None
    groups: tuple[GroupProgress, ...] = ()
    announced: RankReport | None = None
    listens: bool = True
    hangs: bool = False

    @property
    def newest(self) -> RankReport | None:
        """The newest of what it has said."""
        return self.report or self.announced

    @property
    def taken(self) -> float:
        """When that was said; 0 where nothing is known."""
        return self.newest.taken if self.newest is not None else 0.0


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
    sizes = (each.newest.world_size for each in known.values() if each.newest is not None)
    size = max((*sizes, *(number + 1 for number in known)), default=0)
    everyone = [known.get(number) or Heard(number, "unknown", note=_NOT_HEARD) for number in range(size)]
    return replace(_Merging(reports, size, asked).make_cluster(everyone), older=runs_of(older))


_NOT_HEARD = Message("nothing of it is here: it runs elsewhere, has not begun to answer, or has ended")


def _select_newest_job(heard: dict[int, Heard]) -> tuple[dict[int, Heard], list[int]]:
    """Ranks of the job that has spoken last, and those of others of which only a file is left."""
    newest = max(heard.values(), key=lambda each: each.taken, default=Heard(0, "unknown")).newest
    older = [
        rank
        for rank, each in heard.items()
        if newest is not None and not each.listens and each.newest is not None and not is_of_job(each.newest, newest)
    ]
    return {rank: each for rank, each in heard.items() if rank not in older}, older


def is_of_job(report: RankReport, other: RankReport) -> bool:
    """Whether nothing tells the jobs of two reports apart; one that has no run began to answer before torch had a store."""
    same = (report.job, report.world_size) == (other.job, other.world_size)
    return same and (report.run == other.run or not report.run or not other.run)


def split_cluster(cluster: Cluster) -> list[Heard]:
    """What was heard of each rank, from which `merge` makes the same cluster: saved jobs are put together by it."""
    steps = split_steps(cluster.traced) if cluster.traced is not None else {}
    models = [_model_of(cluster, placement) for placement in cluster.placements]
    return [_hear_again(cluster, rank, models, steps.get(rank.number)) for rank in cluster.ranks]


def _model_of(cluster: Cluster, placement: RankPlacement) -> RankModel:
    own = [(module, at) for module, at in zip(cluster.modules, placement.held, strict=True) if at != NOWHERE]
    return RankModel(tuple(module for module, _ in own), cluster.holdings, tuple(at for _, at in own))


def _hear_again(cluster: Cluster, rank: Rank, models: list[RankModel], traced: TracedStep | None) -> Heard:
    said = RankReport(
        rank.number,
        len(cluster.ranks),
        rank.host,
        rank.pid,
        local_rank=rank.local_rank,
        taken=rank.spoke or (cluster.asked - rank.age if cluster.asked else 0.0),
        axes=cluster.axes if rank.coordinates and cluster.axes != (Axis(IN_A_ROW, len(cluster.ranks)),) else (),
        coordinates=rank.coordinates if cluster.axes != (Axis(IN_A_ROW, len(cluster.ranks)),) else (),
        device=rank.device,
        model=models[rank.placement] if rank.placement != NOWHERE else None,
        memory=rank.memory,
        step=rank.step,
        collective=rank.collective,
        groups=rank.groups,
        stack=cluster.stacks[rank.stack] if rank.stack != NOWHERE else (),
        unsharded=rank.unsharded,
        checksums=rank.checksums,
        traced=traced,
        stages=rank.stages,
        last_word=rank.last_word,
        settings=cluster.settings[rank.settings] if rank.settings != NOWHERE else (),
        steps=cluster.steps[rank.steps] if rank.steps != NOWHERE else (),
        sums=rank.sums,
        checksums_step=rank.checksums_step,
        last=rank.last,
    )
    has_said = rank.spoke > 0 or rank.placement != NOWHERE or rank.stack != NOWHERE or rank.step != NOWHERE
    quiet = Heard(rank.number, rank.state, None, rank.host, rank.pid, rank.note, rank.collective, rank.groups, hangs=rank.hangs)
    return replace(quiet, report=said, collective=None, groups=()) if has_said else quiet


MOST_LAST = 8
"""Collectives of one rank that a cluster keeps."""


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
        self._settings: _Table[tuple[Setting, ...]] = _Table()
        self._steps: _Table[tuple[StepSettings, ...]] = _Table()
        self._arrivals = find_arrivals(reports)

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
        return Cluster(
            self._axes,
            ranks,
            modules,
            holdings,
            placements,
            stacks,
            asked=self._asked,
            traced=traced,
            settings=tuple(self._settings.places),
            steps=tuple(self._steps.places),
            arrivals=self._arrivals,
        )

    def _describe_rank(self, heard: Heard) -> Rank:
        said = heard.report
        if said is None:
            quiet = Rank(heard.rank, heard.state, heard.host, heard.pid, note=heard.note)
            spoke = self._asked if heard.groups else 0.0
            return replace(quiet, collective=heard.collective, groups=heard.groups, hangs=heard.hangs, spoke=spoke)
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
            heard.hangs,
            said.last_word,
            said.taken,
            self._settings.place(said.settings) if said.settings else NOWHERE,
            self._steps.place(said.steps) if said.steps else NOWHERE,
            said.sums,
            said.checksums_step,
            said.last[-MOST_LAST:] if heard.hangs or heard.state in GONE else (),
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
