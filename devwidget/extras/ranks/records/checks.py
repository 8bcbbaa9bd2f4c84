"""What must hold between the fields of the records of ranks so that every view can show them."""

from __future__ import annotations

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.records.rank import RankModel, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedJob, TracedStep
from devwidget.records.loading.consistency import Wrong, check_groups
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.schema.message import Message

MOST_RANKS = 2**17
"""More than any job has had; to put so many together takes some seconds."""


@register_check(RankModel)
def _check_holdings(model: RankModel) -> Wrong:
    """Each module holds one of the holdings."""
    if len(model.held) != len(model.modules):
        yield "held", Message("one number for each module")
    elif any(at >= len(model.holdings) for at in model.held):
        yield "held", Message("places in `holdings`")


@register_check(RankReport)
def _check_coordinates(report: RankReport) -> Wrong:
    """A rank is one of its world, and has a place on each axis."""
    if not report.rank < report.world_size <= MOST_RANKS:
        yield "rank", Message("less than `world_size`, which is {most} at most", most=f"{MOST_RANKS:,}")
    if len(report.coordinates) != len(report.axes):
        yield "coordinates", Message("one for each axis")
    elif any(at >= axis.size for at, axis in zip(report.coordinates, report.axes, strict=True)):
        yield "coordinates", Message("inside the mesh")


@register_check(Cluster)
def _check_tables(cluster: Cluster) -> Wrong:
    """Ranks stand at their numbers, and every place in a table exists."""
    if any(rank.number != at for at, rank in enumerate(cluster.ranks)):
        yield "ranks", Message("every rank once, by number")
    for at, placement in enumerate(cluster.placements):
        if len(placement.held) != len(cluster.modules):
            yield f"placements[{at}].held", Message("one number for each module")
        elif any(not NOWHERE <= each < len(cluster.holdings) for each in placement.held):
            yield f"placements[{at}].held", Message("places in `holdings`, or -1")
        if any(not first <= last < len(cluster.ranks) for first, last in placement.ranks):
            yield f"placements[{at}].ranks", Message("runs of ranks")
    for at, rank in enumerate(cluster.ranks):
        if not NOWHERE <= rank.placement < len(cluster.placements):
            yield f"ranks[{at}].placement", Message("a place in `placements`, or -1")
        if not NOWHERE <= rank.stack < len(cluster.stacks):
            yield f"ranks[{at}].stack", Message("a place in `stacks`, or -1")
        if not NOWHERE <= rank.settings < len(cluster.settings):
            yield f"ranks[{at}].settings", Message("a place in `settings`, or -1")
        if not NOWHERE <= rank.steps < len(cluster.steps):
            yield f"ranks[{at}].steps", Message("a place in `steps`, or -1")
        if len(rank.coordinates) not in (0, len(cluster.axes)):
            yield f"ranks[{at}].coordinates", Message("one for each axis, or none")
        elif any(each >= axis.size for each, axis in zip(rank.coordinates, cluster.axes, strict=False)):
            yield f"ranks[{at}].coordinates", Message("inside the mesh")


@register_check(TracedStep)
def _check_step(step: TracedStep) -> Wrong:
    yield from check_groups(step.collectives, step.groups)


@register_check(TracedJob)
def _check_kinds(job: TracedJob) -> Wrong:
    """Each rank is of one kind, and has as many groups as it."""
    for at, rank in enumerate(job.ranks):
        if rank.kind >= len(job.kinds):
            yield f"ranks[{at}].kind", Message("a place in `kinds`")
        elif len(rank.groups) != len(job.kinds[rank.kind].step.groups):
            yield f"ranks[{at}].groups", Message("one for each group of its kind")
        if any(group >= len(job.groups) for group in rank.groups):
            yield f"ranks[{at}].groups", Message("places in `groups`")
