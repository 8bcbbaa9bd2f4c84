"""Check the fields of rank records, so that every view can show them."""

from __future__ import annotations

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.rank import RankModel, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedJob, TracedStep
from devwidget.records.loading.consistency import Wrong, check_groups
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.message import Message

MOST_RANKS = 2**17
"""More than any job has; combining that many takes a few seconds."""


@register_check(RankModel)
def _check_holdings(model: RankModel) -> Wrong:
    if len(model.held) != len(model.modules):
        yield "held", Message("one number for each module")
    elif any(at >= len(model.holdings) for at in model.held):
        yield "held", Message("places in `holdings`")


@register_check(RankReport)
def _check_coordinates(report: RankReport) -> Wrong:
    if not report.rank < report.world_size <= MOST_RANKS:
        yield "rank", Message("less than `world_size`, which is {most} at most", most=f"{MOST_RANKS:,}")
    if len(report.coordinates) != len(report.axes):
        yield "coordinates", Message("one for each axis")
    elif any(at >= axis.size for at, axis in zip(report.coordinates, report.axes, strict=True)):
        yield "coordinates", Message("inside the mesh")


@register_check(Cluster)
def _check_order(cluster: Cluster) -> Wrong:
    if any(rank.number != at for at, rank in enumerate(cluster.ranks)):
        yield "ranks", Message("every rank once, by number")


@register_check(TracedStep)
def _check_step(step: TracedStep) -> Wrong:
    yield from check_groups(step.collectives, step.groups)


@register_check(TracedJob)
def _check_kinds(job: TracedJob) -> Wrong:
    for at, rank in enumerate(job.ranks):
        if rank.kind >= len(job.kinds):
            yield f"ranks[{at}].kind", Message("a place in `kinds`")
        elif len(rank.groups) != len(job.kinds[rank.kind].step.groups):
            yield f"ranks[{at}].groups", Message("one for each group of its kind")
        if any(group >= len(job.groups) for group in rank.groups):
            yield f"ranks[{at}].groups", Message("places in `groups`")
