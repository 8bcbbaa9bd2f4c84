"""Records as pandas data frames; pandas is imported when the first one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from devwidget.extras.plan.records.answers import Changes, Generation, LargestBatch, Layout, OnCards
from devwidget.extras.plan.records.plan import Plan
from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.views.meetings import find_meetings
from devwidget.extras.ranks.words.cluster import difference_words
from devwidget.extras.watch.records.run import COUNTED, FIRST, MEMORY, WatchedRun
from devwidget.records.errors import UnknownNameError, nearest, require_package
from devwidget.records.memory import CATEGORIES, ROLES, DeviceMemory
from devwidget.records.parallel import Piece
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.records.site import Site
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import ModuleEvent, Trace
from devwidget.report.style.words import device_list, piece_words, site_words
from devwidget.views.placement import join_path, tabulate_snapshot
from devwidget.views.usage import KEPT, list_lines, list_modules

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, list[Any]]


def make_frame(record: Any, part: object = "") -> pd.DataFrame:
    """One table of a record, its first one by default."""
    tables = next(_TABLES[kind] for kind in type(record).__mro__ if kind in _TABLES)
    part = part or next(iter(tables))
    if not isinstance(part, str) or part not in tables:
        known = ", ".join(map(repr, tables))
        facts = {"kind": type(record).__name__, "part": repr(part), "hint": nearest(str(part), tables)}
        raise UnknownNameError(
            Message("{kind} has no table {part}{hint}", **facts), instead=Message("one of {known}", known=known)
        )
    require_package("pandas", Message("a data frame"))
    import pandas

    return pandas.DataFrame(tables[part](record))


def _tensor_columns(snapshot: Snapshot) -> Columns:
    rows = [(module.path, tensor) for module in snapshot.modules for tensor in module.tensors]
    rows += [("", tensor) for tensor in snapshot.optimizer]
    plain = ("role", "shape", "dtype", "bytes", "storage", "storage_bytes", "requires_grad", "grad_bytes", "tied_to", "note")
    columns: Columns = {
        "path": [join_path(path, tensor.name) for path, tensor in rows],
        "module": [path if tensor.role != "optimizer" else None for path, tensor in rows],
        "name": [tensor.name for _, tensor in rows],
        "device": [str(tensor.device) for _, tensor in rows],
    }
    columns.update({name: [getattr(tensor, name) for _, tensor in rows] for name in plain})
    columns["grad_device"] = [_as_text(tensor.grad_device) for _, tensor in rows]
    return columns


def _module_columns(snapshot: Snapshot) -> Columns:
    table = tabulate_snapshot(snapshot)
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
        "defined": [_as_text(snapshot.modules[table.modules[row]].defined) for row in rows],
        "note": [table.notes[row] for row in rows],
    }


def _device_columns(devices: Iterable[DeviceMemory]) -> Columns:
    devices = list(devices)
    columns: Columns = {"device": [str(each.device) for each in devices]}
    for name in ("name", "card", "uuid", "virtual", "total", *CATEGORIES, "peak"):
        columns[name] = [getattr(each, name) for each in devices]
    return columns


def _move_columns(trace: Trace) -> Columns:
    names = ("source", "target", "bytes", "count", "tensors", "shape", "dtype", "cause", "module", "phase", "seconds")
    columns = _attribute_columns(trace.moves, "number", *names)
    return columns | _site_columns([move.site for move in trace.moves])


def _wait_columns(trace: Trace) -> Columns:
    columns = _attribute_columns(
        trace.waits, "call", "device", "count", "turns", "module", "phase", "in_step", "library", "meant", "called"
    )
    return columns | _site_columns([wait.site for wait in trace.waits])


def _op_columns(trace: Trace) -> Columns:
    columns = _attribute_columns(trace.ops, "number", "name", "module", "phase", "inputs", "output", "count")
    return columns | _site_columns([op.site for op in trace.ops])


_BYTE_COLUMNS = {
    "parameters": "parameter_bytes",
    "buffers": "buffer_bytes",
    "attributes": "attribute_bytes",
    "gradients": "gradient_bytes",
    "optimizer": "optimizer_bytes",
    "activations": "activation_bytes",
    "outputs": "output_bytes",
    "gathered": "gathered_bytes",
    "inputs": "input_bytes",
    "other": "temporary_bytes",
    "foreign": "foreign_bytes",
    "unknown": "unknown_bytes",
}
"""Role -> its column in the tables by module and by line; they add up to `peak_bytes`."""


def _byte_columns(rows: list[dict[str, int]]) -> Columns:
    columns: Columns = {"peak_bytes": [sum(row.get(role, 0) for role in _BYTE_COLUMNS) for row in rows]}
    columns["kept_bytes"] = [row.get(KEPT, 0) for row in rows]
    return columns | {name: [row.get(role, 0) for row in rows] for role, name in _BYTE_COLUMNS.items()}


_MODULE = ("number", "class_name", "inputs", "outputs", "calls", "seconds", "started", "failed", "replica", "input_shapes",
           "output_shapes")  # fmt: skip
_NOT_CALLED = ModuleEvent("", "", (), (), 0, 0.0)


def _called_columns(trace: Trace) -> Columns:
    rows = list_modules(trace)
    columns = _attribute_columns([row.event or _NOT_CALLED for row in rows], *_MODULE)
    number = columns.pop("number")
    return {"number": number, "path": [row.path for row in rows]} | columns | _byte_columns([row.bytes for row in rows])


def _line_columns(trace: Trace) -> Columns:
    rows = list_lines(trace)
    columns = _attribute_columns(rows, "device") | _site_columns([row.site for row in rows])
    libraries = [row.site.library if row.site is not None else None for row in rows]
    columns["library"] = [f"{each.file}:{each.line}" if each is not None else None for each in libraries]
    columns |= _attribute_columns(rows, "shape", "operators", "seconds", "backward_seconds")
    return columns | _byte_columns([row.bytes for row in rows])


def _memory_columns(trace: Trace) -> Columns:
    pairs = [(curve, point) for curve in trace.memory for point in curve.points]
    points = [point for _, point in pairs]
    columns = _attribute_columns([curve.end for curve, _ in pairs], "device", "name", "virtual", "total")
    columns |= _attribute_columns([curve for curve, _ in pairs], "source")
    return (
        columns
        | _attribute_columns(points, "number", "phase", "module", "allocated", *ROLES)
        | _site_columns([p.site for p in points])
    )


def _finding_columns(trace: Trace | WatchedRun) -> Columns:
    columns = _attribute_columns(trace.findings, "kind", "severity", "module", "headline", "why", "notes", "also")
    columns["fault"] = [_as_text(finding.fault) for finding in trace.findings]
    columns["birth"] = [_as_text(finding.birth) for finding in trace.findings]
    columns["fix"] = [finding.fixes[0].code or finding.fixes[0].summary if finding.fixes else "" for finding in trace.findings]
    return columns


def _step_columns(run: WatchedRun) -> Columns:
    """Microseconds and bytes; a row has `count` steps."""
    columns: Columns = {name: list(getattr(run.steps, name)) for name in (FIRST, *COUNTED)}
    for memory in run.steps.memory:
        columns |= {f"{memory.device} {part}": list(getattr(memory, part)) for part in MEMORY}
    return columns


def _run_finding_columns(run: WatchedRun) -> Columns:
    return {"step": list(run.first_steps)} | _finding_columns(run)


def _replica_columns(trace: Trace) -> Columns:
    names = ("call", "wrapper", "number", "device", "samples", "input_bytes", "parameter_bytes", "buffer_bytes", "output_bytes",
             "gradient_bytes", "peak_bytes", "started", "seconds", "thread", "failed", "gathered_on")  # fmt: skip
    columns = _attribute_columns(trace.replicas, *names)
    columns["inputs"] = [_piece_list(replica.inputs) for replica in trace.replicas]
    columns["outputs"] = [_piece_list(replica.outputs) for replica in trace.replicas]
    return columns


def _collective_columns(trace: Trace) -> Columns:
    names = ("number", "kind", "sequence", "bytes", "module", "phase", "by", "peer")
    columns = _attribute_columns(trace.collectives, *names)
    columns["group"] = [trace.groups[call.group].label for call in trace.collectives]
    columns["ranks"] = [trace.groups[call.group].ranks for call in trace.collectives]
    return columns | _site_columns([call.site for call in trace.collectives])


def _of_all_ranks(cluster: Cluster) -> Columns:
    """Collectives of all ranks: of groups whose ranks did the same one stands for all, with how many there are."""
    met = find_meetings(cluster.traced) if cluster.traced is not None else ()
    calls = [meeting.call for meeting in met]
    columns = _attribute_columns(calls, "kind", "sequence", "bytes", "module", "phase", "by")
    columns["group"] = [meeting.group.label for meeting in met]
    columns["ranks"] = [tuple(part.rank for part in meeting.parts) for meeting in met]
    columns["groups"] = [meeting.times for meeting in met]
    columns["differs"] = [difference_words(meeting) for meeting in met]
    return columns | _site_columns([call.site for call in calls])


def _plan_columns(plan: Plan) -> Columns:
    parts = ("weights", "gradients", "optimizer", "activations")
    totals = "reserved", "context", "on_card", "fits", "is_close"
    columns = _attribute_columns(plan.devices, "device", "capacity", "peak", *parts, *totals)
    for name in ("peak_at", "tips_over"):
        moments = [getattr(device, name) for device in plan.devices]
        for what in ("phase", "module", "site"):
            columns[f"{name}_{what}"] = [_as_text(getattr(moment, what, None)) for moment in moments]
    return columns


def _device_map_columns(plan: Plan) -> Columns:
    return {"path": [path for path, _ in plan.device_map], "device": [device for _, device in plan.device_map]}


def _piece_list(pieces: Iterable[Piece]) -> str:
    return ", ".join(map(piece_words, pieces))


def _attribute_columns(records: Iterable[Any], *names: str) -> Columns:
    records = list(records)
    return {name: [_as_text(getattr(record, name)) for record in records] for name in names}


def _site_columns(sites: list[Site | None]) -> Columns:
    return {
        "file": [site.file if site else None for site in sites],
        "line": [site.line if site else None for site in sites],
        "source_line": [site.text if site else None for site in sites],
    }


def _as_text(value: Any) -> Any:
    """Devices and places as text; a tuple of devices as one text; the rest as it is."""
    from devwidget.records.device import DeviceId

    if isinstance(value, DeviceId):
        return str(value)
    if isinstance(value, Site):
        return site_words(value)
    if isinstance(value, tuple) and all(isinstance(each, DeviceId) for each in value) and value:
        return device_list(value)
    return value


def _columns_of(records: str, *names: str) -> Callable[[Any], Columns]:
    """Attributes of the records that are themselves an attribute."""
    return lambda record: _attribute_columns(getattr(record, records), *names)


_CARD = ("card", "on_card", "capacity", "fits", "is_close", "problem")


def _row_columns(cards: OnCards) -> Columns:
    each = [(row, card) for row in cards.rows for card in row.cards]
    return {"what": [row.what for row, _ in each], **_attribute_columns([card for _, card in each], *_CARD, "change")}


_RANK = ("number", "state", "host", "pid", "coordinates", "placement", "device", "step", "age", "note")
_TABLES: dict[type, dict[str, Callable[[Any], Columns]]] = {
    Snapshot: {
        "tensors": _tensor_columns,
        "modules": _module_columns,
        "memory": lambda snapshot: _device_columns(snapshot.memory),
    },
    Trace: {
        "moves": _move_columns,
        "ops": _op_columns,
        "modules": _called_columns,
        "lines": _line_columns,
        "memory": _memory_columns,
        "findings": _finding_columns,
        "replicas": _replica_columns,
        "collectives": _collective_columns,
        "waits": _wait_columns,
    },
    WatchedRun: {"steps": _step_columns, "findings": _run_finding_columns},
    Cluster: {
        "ranks": _columns_of("ranks", *_RANK),
        "collectives": _of_all_ranks,
    },
    Plan: {"devices": _plan_columns, "device_map": _device_map_columns},
    OnCards: {"cards": _columns_of("cards", *_CARD), "rows": _row_columns},
    LargestBatch: {"runs": _columns_of("runs", "size", "on_card", "fits", "is_close")},
    Changes: {"changes": _columns_of("changes", "what", "on_card", "saved", "fits", "is_close", "cost", "code", "problem")},
    Layout: {
        "blocks": _columns_of("blocks", "path", "device", "weights", "kept", "beyond", "passed"),
        "devices": _columns_of("devices", "device", "on_card", "capacity"),
    },
    Generation: {"runs": _columns_of("runs", "length", "cache", "prefill", "decode")},
}
"""Record -> its tables by name, the first of them the default."""
for _kind in _TABLES:
    presents("frame", _kind)(make_frame)
