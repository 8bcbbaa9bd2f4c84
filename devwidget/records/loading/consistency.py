"""What must hold between the fields of a record so that every view can show it; a loaded file is held to it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import NOWHERE, Cluster
from devwidget.extras.ranks.records.rank import RankModel, RankReport
from devwidget.extras.ranks.records.traced_steps import TracedJob, TracedStep
from devwidget.extras.watch.records.job import WatchedJob
from devwidget.extras.watch.records.run import COUNTED, FIRST, MEMORY, StepRows, WatchedRun
from devwidget.records.loading.typed_reader import register_check
from devwidget.records.parallel import DataParallelCall
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import ModuleFacts, Snapshot, TensorFacts
from devwidget.records.trace import Trace

Wrong = Iterator[tuple[str, str]]

MOST_ELEMENTS = 2**63
DEEPEST = 2**16 - 1
"""Nesting of modules, which travels to a page as 16 bits."""

MOST_RANKS = 2**17
"""More than any job has had; to put so many together takes some seconds."""


@register_check(Snapshot)
def _check_pre_order(snapshot: Snapshot) -> Wrong:
    """Parents stand before their children, one level higher."""
    for place, module in enumerate(snapshot.modules):
        if not (0 <= module.parent < place if place else module.parent == -1):
            yield f"modules[{place}].parent", Message("the index of an earlier module") if place else Message("-1 for the root")
        elif module.depth != _find_depth(snapshot.modules, module.parent) or module.depth > DEEPEST:
            yield f"modules[{place}].depth", Message("one more than that of its parent")


def _find_depth(modules: tuple[ModuleFacts, ...], parent: int) -> int:
    return modules[parent].depth + 1 if parent >= 0 else 0


@register_check(TensorFacts)
def _check_elements(tensor: TensorFacts) -> Wrong:
    """No tensor has more elements than torch can count, whatever its file says."""
    shape = tensor.shape or ()
    if len(shape) > 64 and any(size != 1 for size in shape[64:]):
        yield "shape", Message("64 dimensions at most")
    elif math.prod(shape) > MOST_ELEMENTS:
        yield "shape", Message("less than 2**63 elements")


@register_check(DataParallelCall)
def _check_devices(call: DataParallelCall) -> Wrong:
    if not call.device_ids:
        yield "device_ids", Message("one device or more")


@register_check(Trace)
def _check_replicas(trace: Trace) -> Wrong:
    """A replica belongs to a call, and runs on one of its devices."""
    yield from _check_groups(trace)
    calls = {call.number: call for call in trace.parallel}
    for place, replica in enumerate(trace.replicas):
        call = calls.get(replica.call)
        if call is not None and replica.device not in call.device_ids:
            yield f"replicas[{place}].device", Message("one of the devices of its call")


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
def _check_groups(traced: Trace | TracedStep) -> Wrong:
    """A collective belongs to a process group."""
    for at, call in enumerate(traced.collectives):
        if call.group >= len(traced.groups):
            yield f"collectives[{at}].group", Message("a place in `groups`")


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


@register_check(StepRows)
def _check_columns(rows: StepRows) -> Wrong:
    """All columns have one number for each row, of 63 bits at most."""
    columns = {name: getattr(rows, name) for name in (FIRST, *COUNTED)}
    for at, memory in enumerate(rows.memory):
        columns |= {f"memory[{at}].{part}": getattr(memory, part) for part in MEMORY}
    for name, numbers in columns.items():
        if len(numbers) != len(rows):
            yield name, Message("one number for each row")
        elif max(numbers, default=0) >= 2**62:
            yield name, Message("numbers below 2**62")


@register_check(WatchedJob)
def _check_ranks(job: WatchedJob) -> Wrong:
    if len(job.ranks) != len(job.runs) or len(set(job.ranks)) != len(job.ranks):
        yield "ranks", Message("one for each run")


@register_check(WatchedRun)
def _check_first_steps(run: WatchedRun) -> Wrong:
    if len(run.first_steps) != len(run.findings):
        yield "first_steps", Message("one number for each finding")
