"""Records as pandas data frames; pandas is imported when the first one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from devwidget.language.speaking import say
from devwidget.records.answers.generation import Generation
from devwidget.records.answers.layout import Layout
from devwidget.records.answers.what_if import Changes, LargestBatch
from devwidget.records.errors import nearest
from devwidget.records.memory import CATEGORIES, DeviceMemory
from devwidget.records.memory_curve import ROLES
from devwidget.records.parallel import Piece
from devwidget.records.plan import Plan
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.schema.record import presents
from devwidget.records.site import Site
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.style.words import device_list, piece_words, site_words
from devwidget.report.text.cluster_text import difference_words
from devwidget.views.placement import join, place
from devwidget.views.ranks.meetings import meetings

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, list[Any]]


@presents("frame", Snapshot)
def snapshot_frame(snapshot: Snapshot, part: str = "") -> pd.DataFrame:
    """One row for each tensor (`tensors`), for each row of the tree (`modules`), or for each device (`memory`)."""
    return _frame(snapshot, part or "tensors", _SNAPSHOT_PARTS)


@presents("frame", Trace)
def trace_frame(trace: Trace, part: str = "") -> pd.DataFrame:
    """`moves`, `ops`, `modules`, `memory`, `findings`, `replicas`, `collectives` or `waits`."""
    return _frame(trace, part or "moves", _TRACE_PARTS)


@presents("frame", Cluster)
def cluster_frame(cluster: Cluster, part: str = "") -> pd.DataFrame:
    """One row for each rank (`ranks`), or for each collective of a traced step (`collectives`)."""
    return _frame(cluster, part or "ranks", _CLUSTER_PARTS)


@presents("frame", Plan)
def plan_frame(plan: Plan, part: str = "") -> pd.DataFrame:
    """One row for each GPU (`devices`), or for each part of the device map (`device_map`)."""
    return _frame(plan, part or "devices", _PLAN_PARTS)


@presents("frame", LargestBatch)
def largest_batch_frame(answer: LargestBatch, part: str = "") -> pd.DataFrame:
    """One row for each plan that was run (`runs`)."""
    return _frame(answer, part or "runs", {"runs": lambda answer: _columns(answer.runs, "size", "on_card", "fits")})


@presents("frame", Changes)
def changes_frame(answer: Changes, part: str = "") -> pd.DataFrame:
    """One row for each change (`changes`)."""
    names = ("what", "on_card", "saved", "fits", "cost", "code", "problem")
    return _frame(answer, part or "changes", {"changes": lambda answer: _columns(answer.changes, *names)})


@presents("frame", Layout)
def layout_frame(layout: Layout, part: str = "") -> pd.DataFrame:
    """One row for each block (`blocks`), or for each GPU (`devices`)."""
    parts: dict[str, Callable[[Any], Columns]] = {
        "blocks": lambda layout: _columns(layout.blocks, "path", "device", "weights", "kept", "beyond", "passed"),
        "devices": lambda layout: _columns(layout.devices, "device", "on_card", "capacity"),
    }
    return _frame(layout, part or "blocks", parts)


@presents("frame", Generation)
def generation_frame(generation: Generation, part: str = "") -> pd.DataFrame:
    """One row for each length that was run (`runs`)."""
    names = ("length", "cache", "prefill", "decode")
    return _frame(generation, part or "runs", {"runs": lambda generation: _columns(generation.runs, *names)})


def _frame(record: Any, part: object, parts: dict[str, Callable[[Any], Columns]]) -> pd.DataFrame:
    if not isinstance(part, str) or part not in parts:
        known = ", ".join(map(repr, parts))
        facts = {"kind": type(record).__name__, "part": repr(part), "hint": nearest(str(part), parts), "known": known}
        raise ValueError(say("{kind} has no table {part}{hint}; known: {known}", **facts))
    import pandas

    return pandas.DataFrame(parts[part](record))


def _tensors(snapshot: Snapshot) -> Columns:
    rows = [(module.path, tensor) for module in snapshot.modules for tensor in module.tensors]
    rows += [("", tensor) for tensor in snapshot.optimizer]
    plain = ("role", "shape", "dtype", "bytes", "storage", "storage_bytes", "requires_grad", "grad_bytes", "tied_to", "note")
    columns: Columns = {
        "path": [join(path, tensor.name) for path, tensor in rows],
        "module": [path if tensor.role != "optimizer" else None for path, tensor in rows],
        "name": [tensor.name for _, tensor in rows],
        "device": [str(tensor.device) for _, tensor in rows],
    }
    columns.update({name: [getattr(tensor, name) for _, tensor in rows] for name in plain})
    columns["grad_device"] = [_text(tensor.grad_device) for _, tensor in rows]
    return columns


def _modules(snapshot: Snapshot) -> Columns:
    table = place(snapshot)
    rows = [row for row, tensor in enumerate(table.tensors) if tensor is None]
    return {
        "path": [table.paths[row] for row in rows],
        "class": [table.classes[row] for row in rows],
        "depth": [table.depths[row] for row in rows],
        "devices": [device_list(table.devices_of(row)) for row in rows],
        "dtypes": [", ".join(table.dtypes_of(row)) for row in rows],
        "parameters": [table.parameters[row] for row in rows],
        "bytes": [table.bytes[row] for row in rows],
        "own_bytes": [table.own_bytes[row] for row in rows],
        "grad_bytes": [table.gradients[row] for row in rows],
        "training": [snapshot.modules[table.modules[row]].training for row in rows],
        "defined": [_text(snapshot.modules[table.modules[row]].defined) for row in rows],
        "note": [table.notes[row] for row in rows],
    }


def _device_columns(devices: Iterable[DeviceMemory]) -> Columns:
    devices = list(devices)
    columns: Columns = {"device": [str(each.device) for each in devices]}
    for name in ("name", "card", "uuid", "virtual", "total", *CATEGORIES, "peak"):
        columns[name] = [getattr(each, name) for each in devices]
    return columns


def _moves(trace: Trace) -> Columns:
    names = ("source", "target", "bytes", "count", "tensors", "shape", "dtype", "cause", "module", "phase", "seconds")
    columns = _columns(trace.moves, "number", *names)
    return columns | _sites([move.site for move in trace.moves])


def _waits(trace: Trace) -> Columns:
    columns = _columns(
        trace.waits, "call", "device", "count", "turns", "module", "phase", "in_step", "library", "meant", "called"
    )
    return columns | _sites([wait.site for wait in trace.waits])


def _ops(trace: Trace) -> Columns:
    columns = _columns(trace.ops, "number", "name", "module", "phase", "inputs", "output", "count")
    return columns | _sites([op.site for op in trace.ops])


def _trace_modules(trace: Trace) -> Columns:
    return _columns(
        trace.modules, "number", "path", "class_name", "inputs", "outputs", "calls", "seconds", "started", "failed", "replica"
    )


def _memory(trace: Trace) -> Columns:
    pairs = [(curve, point) for curve in trace.memory for point in curve.points]
    points = [point for _, point in pairs]
    columns = _columns([curve.end for curve, _ in pairs], "device", "name", "virtual", "total")
    columns |= _columns([curve for curve, _ in pairs], "source")
    return columns | _columns(points, "number", "phase", "module", "allocated", *ROLES) | _sites([p.site for p in points])


def _findings(trace: Trace) -> Columns:
    columns = _columns(trace.findings, "kind", "severity", "module", "headline", "why", "notes", "also")
    columns["fault"] = [_text(finding.fault) for finding in trace.findings]
    columns["birth"] = [_text(finding.birth) for finding in trace.findings]
    columns["fix"] = [finding.fixes[0].code or finding.fixes[0].summary if finding.fixes else "" for finding in trace.findings]
    return columns


def _replicas(trace: Trace) -> Columns:
    names = ("call", "wrapper", "number", "device", "samples", "input_bytes", "parameter_bytes", "buffer_bytes", "output_bytes",
             "gradient_bytes", "peak_bytes", "started", "seconds", "thread", "failed", "gathered_on")  # fmt: skip
    columns = _columns(trace.replicas, *names)
    columns["inputs"] = [_pieces(replica.inputs) for replica in trace.replicas]
    columns["outputs"] = [_pieces(replica.outputs) for replica in trace.replicas]
    return columns


def _collectives(trace: Trace) -> Columns:
    names = ("number", "kind", "sequence", "bytes", "module", "phase", "by", "peer")
    columns = _columns(trace.collectives, *names)
    columns["group"] = [trace.groups[call.group].label for call in trace.collectives]
    columns["ranks"] = [trace.groups[call.group].ranks for call in trace.collectives]
    return columns | _sites([call.site for call in trace.collectives])


def _ranks(cluster: Cluster) -> Columns:
    return _columns(
        cluster.ranks, "number", "state", "host", "pid", "coordinates", "placement", "device", "step", "age", "note"
    )


def _of_all_ranks(cluster: Cluster) -> Columns:
    """Those of groups whose ranks did the same stand once, with how many groups there are."""
    met = meetings(cluster.traced) if cluster.traced is not None else ()
    calls = [meeting.call for meeting in met]
    columns = _columns(calls, "kind", "sequence", "bytes", "module", "phase", "by")
    columns["group"] = [meeting.group.label for meeting in met]
    columns["ranks"] = [tuple(part.rank for part in meeting.parts) for meeting in met]
    columns["groups"] = [meeting.times for meeting in met]
    columns["differs"] = [difference_words(meeting) for meeting in met]
    return columns | _sites([call.site for call in calls])


def _planned(plan: Plan) -> Columns:
    parts = ("weights", "gradients", "optimizer", "activations")
    columns = _columns(plan.devices, "device", "capacity", "peak", *parts, "reserved", "context", "on_card", "fits")
    for name in ("peak_at", "tips_over"):
        moments = [getattr(device, name) for device in plan.devices]
        for what in ("phase", "module", "site"):
            columns[f"{name}_{what}"] = [_text(getattr(moment, what, None)) for moment in moments]
    return columns


def _map(plan: Plan) -> Columns:
    return {"path": [path for path, _ in plan.device_map], "device": [device for _, device in plan.device_map]}


def _pieces(pieces: Iterable[Piece]) -> str:
    return ", ".join(map(piece_words, pieces))


def _columns(records: Iterable[Any], *names: str) -> Columns:
    records = list(records)
    return {name: [_text(getattr(record, name)) for record in records] for name in names}


def _sites(sites: list[Site | None]) -> Columns:
    return {
        "file": [site.file if site else None for site in sites],
        "line": [site.line if site else None for site in sites],
        "source_line": [site.text if site else None for site in sites],
    }


def _text(value: Any) -> Any:
    """Devices and places as text; a tuple of devices as one text; the rest as it is."""
    from devwidget.records.device import DeviceId

    if isinstance(value, DeviceId):
        return str(value)
    if isinstance(value, Site):
        return site_words(value)
    if isinstance(value, tuple) and all(isinstance(each, DeviceId) for each in value) and value:
        return device_list(value)
    return value


_SNAPSHOT_PARTS: dict[str, Callable[[Any], Columns]] = {
    "tensors": _tensors,
    "modules": _modules,
    "memory": lambda snapshot: _device_columns(snapshot.memory),
}
_PLAN_PARTS: dict[str, Callable[[Any], Columns]] = {"devices": _planned, "device_map": _map}
_CLUSTER_PARTS: dict[str, Callable[[Any], Columns]] = {"ranks": _ranks, "collectives": _of_all_ranks}
_TRACE_PARTS: dict[str, Callable[[Any], Columns]] = {
    "moves": _moves,
    "ops": _ops,
    "modules": _trace_modules,
    "memory": _memory,
    "findings": _findings,
    "replicas": _replicas,
    "collectives": _collectives,
    "waits": _waits,
}
