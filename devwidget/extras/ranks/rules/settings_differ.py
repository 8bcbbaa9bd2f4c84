"""settings-differ: ranks that share a model train it with different settings or in different modes.

Why: each rank updates its copy or shard with its own learning rate, or without dropout.
Bad: `optimizer.param_groups[0]["lr"] *= 2` on the rank that evaluates; `model.eval()` there without `model.train()` after it.
Good: the same schedule on every rank; `model.train()` at the start of each epoch.
Source: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.rank import Setting, SettingKind, StepSettings
from devwidget.extras.ranks.rules.over_ranks import (
    STAGES_ARE_FINE,
    answered,
    are_copies,
    cluster_rule,
    format_first,
    format_values,
    peers_in,
)
from devwidget.records.finding import Finding, Fix, Severity
from devwidget.records.schema.message import Message

_KINDS: dict[SettingKind, tuple[Severity, str, str]] = {
    "optimizer": (
        "error",
        Message("ranks that share a model must update it equally"),
        Message("set it with the same code and values on every rank"),
    ),
    "mode": (
        "error",
        Message("evaluation mode disables dropout and uses running statistics in norms, so gradients differ"),
        Message("call model.train() on every rank before the next step"),
    ),
    "precision": (
        "warning",
        Message("ranks that compute differently produce results that drift apart"),
        Message("set it with the same code on every rank"),
    ),
    "version": (
        "warning",
        Message("different versions may use different algorithms and protocols"),
        Message("install the same version on every machine"),
    ),
    "environment": (
        "info",
        Message("these variables change how a rank computes or communicates; some differ between machines on purpose"),
        Message("set it in the script that launches all ranks"),
    ),
}


@cluster_rule("settings-differ")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding for each kind of setting and each way in which it differs between comparable ranks."""
    for ranks in compared_ranks(cluster):
        differences = (*find_step_differences(ranks), *_find_place_differences(ranks))
        # Those with the same groups of ranks usually have one cause.
        for alike in group_by(differences, lambda each: (each.kind, each.parts)).values():
            yield _make_finding(cluster, alike)


def _make_finding(cluster: Cluster, alike: list[SettingDifference]) -> Finding:
    first, *others = alike
    severity, why, cure = _KINDS[first.kind]
    may_be_stages = first.kind in ("optimizer", "mode") and not are_copies(cluster)
    notes = []
    if first.step != NOWHERE:
        notes.append(Message("seen at the end of step {step}", step=first.step))
    if others:
        names = format_first([each.name for each in others])
        notes.append(Message("the same ranks differ in {names}", names=names))
    if may_be_stages:
        notes.append(STAGES_ARE_FINE)
    return Finding(
        "settings-differ", "warning" if may_be_stages else severity, first.name if first.kind == "mode" else None,
        _word_difference(first), why,
        fixes=(Fix(cure, "", "choice"),),
        notes=tuple(notes),
        roles=answered(sorted(rank for _, ranks in first.values for rank in ranks)),
    )  # fmt: skip


def _word_difference(difference: SettingDifference) -> str:
    facts = {"name": difference.name, "values": format_values(difference.values)}
    if difference.kind != "mode":
        return Message("`{name}` differs: {values}", **facts)
    if difference.name:
        return Message("`{name}` is in different modes: {values}", **facts)
    return Message("the model is in different modes: {values}", values=facts["values"])


Values = tuple[tuple[str, tuple[int, ...]], ...]
"""Each value with its ranks, rarest first."""


class SettingDifference(NamedTuple):
    """A setting that differs between comparable ranks, and the step at which it did; -1 for one that does not change."""

    kind: SettingKind
    name: str
    values: Values
    step: int

    @property
    def parts(self) -> frozenset[tuple[int, ...]]:
        """Groups of ranks with equal values."""
        return frozenset(ranks for _, ranks in self.values)


def compared_ranks(cluster: Cluster) -> Iterator[list[Rank]]:
    """Yield ranks that should have equal settings: the ranks of one pipeline stage; all ranks if no model was found."""
    peers = list(peers_in(cluster, lay_out_columns(cluster)))
    if not peers:
        yield list(cluster.ranks)
    for each in peers:
        yield cluster.select(sorted(itertools.chain(*each.values())))


_Named = Mapping[tuple[SettingKind, str], str]
_Told = list[tuple[_Named, list[int]]]
"""Distinct settings by name, each with its ranks."""


def find_step_differences(ranks: Collection[Rank]) -> Iterator[SettingDifference]:
    """Return the differences at the newest step that all of these ranks know; nothing without one."""
    tables = group_by((rank for rank in ranks if rank.said.steps), lambda rank: rank.said.steps)
    seen: set[tuple[SettingKind, str]] = set()
    for of_modules in (False, True):
        for each in _compare_steps(tables, of_modules):
            # The root is looked at after each step, and with all modules.
            if (each.kind, each.name) not in seen:
                seen.add((each.kind, each.name))
                yield each


def _compare_steps(tables: Mapping[tuple[StepSettings, ...], list[Rank]], of_modules: bool) -> Iterator[SettingDifference]:
    runs = [[run for run in table if _is_of_modules(run) == of_modules] for table in tables]
    step = _find_common_step(runs)
    told: _Told = []
    for of_table, ranks in zip(runs, tables.values(), strict=True):
        run = _find_run(of_table, step)
        if run is not None:
            told.append((_by_name(run.settings), numbers_of(ranks)))
    yield from _compare(told, step)


def _find_place_differences(ranks: Collection[Rank]) -> Iterator[SettingDifference]:
    """Return the differences of settings that do not change, except random seeds, which may differ."""
    same = group_by((rank for rank in ranks if rank.said.settings), lambda rank: rank.said.settings)
    told = [(_by_name(settings), numbers_of(each)) for settings, each in same.items()]
    yield from (each for each in _compare(told, NOWHERE) if each.kind != "random")


def _is_of_modules(run: StepSettings) -> bool:
    """Return whether it comes from a walk over all modules, which is done after few steps."""
    return all(setting.kind != "optimizer" for setting in run.settings)


def _find_common_step(tables: list[list[StepSettings]]) -> int:
    """Return the newest step that is in every table; -1 without one."""
    lasts = {run.last for table in tables for run in table}
    for step in sorted(lasts, reverse=True):
        if all(_find_run(table, step) is not None for table in tables):
            return step
    return NOWHERE


def _find_run(table: list[StepSettings], step: int) -> StepSettings | None:
    for run in reversed(table):
        if run.first <= step <= run.last:
            return run
    return None


def _by_name(settings: Iterable[Setting]) -> _Named:
    return {(setting.kind, setting.name): setting.value for setting in settings}


_ABSENT: Mapping[SettingKind, str] = {"mode": Message("as its parent module"), "environment": Message("not set")}


def _compare(told: _Told, step: int) -> Iterator[SettingDifference]:
    for kind, name in dict.fromkeys(name for settings, _ in told for name in settings):
        absent = _ABSENT.get(kind, Message("none"))
        values: dict[str, list[int]] = {}
        for settings, ranks in told:
            values.setdefault(settings.get((kind, name), absent), []).extend(ranks)
        if len(values) > 1:
            ordered = sorted(values.items(), key=lambda each: len(each[1]))
            yield SettingDifference(kind, name, tuple((value, tuple(sorted(ranks))) for value, ranks in ordered), step)
