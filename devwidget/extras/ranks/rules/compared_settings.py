"""What ranks train by, compared: at the newest step that all of them know, and where they run."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.rank import Setting, SettingKind, StepSettings
from devwidget.extras.ranks.rules.over_ranks import format_rank_ranges, group_by, numbers_of, peers_in
from devwidget.records.schema.message import Message, in_row

Values = tuple[tuple[str, tuple[int, ...]], ...]
"""Each value with the ranks that have it, the rarest first."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not set alike on ranks that can be compared.

    Attributes:
        kind: of setting.
        name: what is set.
        values: each value, with its ranks.
        step: after which it was so; -1 for what holds from the first to the last.
    """

    kind: SettingKind
    name: str
    values: Values
    step: int = NOWHERE

    @property
    def parts(self) -> frozenset[tuple[int, ...]]:
        """How it parts the ranks."""
        return frozenset(ranks for _, ranks in self.values)

    def word_values(self) -> str:
        """`0.02 on rank 3, 0.01 on ranks 0-2`."""
        return in_row(Message("{kind} on {ranks}", kind=value, ranks=format_rank_ranges(ranks)) for value, ranks in self.values)


def compared_ranks(cluster: Cluster) -> Iterator[list[Rank]]:
    """Ranks that should be set alike: of a pipeline those of one stage; all of them where no model was found."""
    peers = list(peers_in(cluster, lay_out_columns(cluster)))
    if not peers:
        yield list(cluster.ranks)
    for each in peers:
        yield [cluster.ranks[number] for number in sorted(itertools.chain(*each.values()))]


def find_step_differences(ranks: Collection[Rank]) -> Iterator[Difference]:
    """What differs in the newest step that all of these know; nothing where they know none together."""
    tables = group_by((rank for rank in ranks if rank.said.steps), lambda rank: rank.said.steps)
    found: dict[tuple[SettingKind, str], Difference] = {}
    for of_modules in (False, True):
        runs = {table: [run for run in table if _is_of_modules(run) == of_modules] for table in tables}
        step = _find_common_step(runs.values())
        if step != NOWHERE:
            at_step = [(_settings_at(runs[table], step), numbers_of(same)) for table, same in tables.items()]
            for each in _compare(at_step, step):
                # The root is looked at after each step, and with all modules.
                found.setdefault((each.kind, each.name), each)
    yield from found.values()


def find_place_differences(ranks: Collection[Rank]) -> Iterator[Difference]:
    """What differs of what holds from the first step to the last; not where random numbers begin, which may."""
    same = group_by((rank for rank in ranks if rank.said.settings), lambda rank: rank.said.settings)
    told = [(_by_name(settings), numbers_of(each)) for settings, each in same.items()]
    yield from (each for each in _compare(told, NOWHERE) if each.kind != "random")


def _is_of_modules(run: StepSettings) -> bool:
    """Whether it was taken by a walk over all modules, which is done after few steps."""
    return all(setting.kind != "optimizer" for setting in run.settings)


def _find_common_step(tables: Iterable[list[StepSettings]]) -> int:
    runs = list(tables)
    lasts = sorted({run.last for table in runs for run in table}, reverse=True)
    return next((step for step in lasts if all(any(run.first <= step <= run.last for run in table) for table in runs)), NOWHERE)


_Named = Mapping[tuple[SettingKind, str], str]


def _settings_at(table: list[StepSettings], step: int) -> _Named:
    return _by_name(next(run for run in reversed(table) if run.first <= step <= run.last).settings)


def _by_name(settings: Iterable[Setting]) -> _Named:
    return {(setting.kind, setting.name): setting.value for setting in settings}


_ABSENT: Mapping[SettingKind, str] = {"mode": Message("as the module around it"), "environment": Message("not set")}


def _compare(told: list[tuple[_Named, list[int]]], step: int) -> Iterator[Difference]:
    """Compare settings, each with the ranks that have them: of a thousand ranks few differ."""
    for kind, name in dict.fromkeys(name for settings, _ in told for name in settings):
        values: dict[str, list[int]] = {}
        for settings, ranks in told:
            values.setdefault(settings.get((kind, name), _ABSENT.get(kind, Message("none"))), []).extend(ranks)
        if len(values) > 1:
            ordered = sorted(values.items(), key=lambda each: len(each[1]))
            yield Difference(kind, name, tuple((value, tuple(sorted(ranks))) for value, ranks in ordered), step)


def group_alike(differences: Iterable[Difference]) -> list[list[Difference]]:
    """Differences that part the ranks in one way, which mostly have one cause."""
    found: dict[tuple[SettingKind, frozenset[tuple[int, ...]]], list[Difference]] = {}
    for each in differences:
        found.setdefault((each.kind, each.parts), []).append(each)
    return list(found.values())
