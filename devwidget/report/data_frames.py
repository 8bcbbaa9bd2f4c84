"""Records as pandas data frames; pandas is imported when the first one is made."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from devwidget.records.device import DeviceId
from devwidget.records.errors import UnknownNameError, nearest, require_package
from devwidget.records.finding import Finding
from devwidget.records.memory import CATEGORIES, ROLES, MemoryCurve, MemoryPoint, PeakShare
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.records.site import Site
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import ModuleEvent, OpEvent, Trace
from devwidget.report.style.words import device_list, piece_words, site_words
from devwidget.views.placement import join_path, tabulate_snapshot
from devwidget.views.sums import group_by, total

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Columns = dict[str, list[Any]]


def make_frame(record: Any, part: object = "") -> pd.DataFrame:
    """One table of a record, its first one by default."""
    tables = next(_tables[kind] for kind in type(record).__mro__ if kind in _tables)
    list_columns = choose_part(tables, record, part, Message("table"))
    require_package("pandas", Message("a data frame"))
    import pandas

    return pandas.DataFrame(list_columns(record))


def choose_part(parts: Mapping[str, T], record: object, part: object, what: str) -> T:
    """The part of a record with a name, the first one by default.

    Raises:
        UnknownNameError: if there is none of this name.
    """
    part = part or next(iter(parts))
    if isinstance(part, str) and part in parts:
        return parts[part]
    facts = {"kind": type(record).__name__, "what": what, "part": repr(part), "hint": nearest(str(part), parts)}
    known = Message("one of {known}", known=", ".join(map(repr, parts)))
    raise UnknownNameError(Message("{kind} has no {what} {part}{hint}", **facts), instead=known)


def _tensor_columns(snapshot: Snapshot) -> Columns:
    columns: Columns = {"path": [], "module": []}
    tensors = []
    for module in snapshot.modules:
        for tensor in module.tensors:
            columns["path"].append(join_path(module.path, tensor.name))
            columns["module"].append(module.path)
            tensors.append(tensor)
    for tensor in snapshot.optimizer:
        columns["path"].append(tensor.name)
        columns["module"].append(None)
        tensors.append(tensor)
    return columns | attribute_columns(tensors, *_TENSOR)


def _module_columns(snapshot: Snapshot) -> Columns:
    table = tabulate_snapshot(snapshot)
    rows = [row for row, tensor in enumerate(table.tensors) if tensor is None]

    def pick(column: list[Any]) -> list[Any]:
        return list(map(column.__getitem__, rows))

    return {
        "path": pick(table.paths),
        "class": pick(table.classes),
        "depth": pick(table.depths),
        "devices": list(map(device_list, map(table.devices_of, rows))),
        "dtypes": list(map(", ".join, map(table.dtypes_of, rows))),
        "parameters": pick(table.parameters),
        "bytes": pick(table.bytes),
        "own_bytes": pick(table.own_bytes),
        "grad_bytes": pick(table.gradients),
        **attribute_columns(map(snapshot.modules.__getitem__, pick(table.modules)), "training", "defined"),
        "note": pick(table.notes),
    }


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
"""Role -> its column in the tables by module and by line; they add up to `peak_bytes`.

A role of its own, `kept`, are activations that backward needs, when there were most of them: a peak in the optimizer has none.
"""


def _list_shares(curves: Iterable[MemoryCurve]) -> Iterator[tuple[DeviceId, PeakShare, str]]:
    """Each share with its device, and what it counts as."""
    for curve in curves:
        for share in curve.shares:
            yield curve.device, share, share.role
        for share in curve.kept:
            yield curve.device, share, "kept"


def _byte_columns(rows: Iterable[Counter[str]]) -> Columns:
    rows = list(rows)
    columns: Columns = {
        "peak_bytes": [sizes.total() - sizes["kept"] for sizes in rows],
        "kept_bytes": [sizes["kept"] for sizes in rows],
    }
    for role, name in _BYTE_COLUMNS.items():
        columns[name] = [sizes[role] for sizes in rows]
    return columns


_MODULE = ("number", "class_name", "inputs", "outputs", "calls", "seconds", "started", "failed", "replica", "input_shapes",
           "output_shapes")  # fmt: skip
_NOT_CALLED = ModuleEvent("", "", (), (), 0, 0.0)
_TENSOR = ("name", "device", "role", "shape", "dtype", "bytes", "storage", "storage_bytes", "requires_grad", "grad_bytes",
           "tied_to", "note", "grad_device")  # fmt: skip


@dataclasses.dataclass(slots=True)
class _ModuleRow:
    """What a module, or a replica of it, was called with, and what it had at the peaks of all devices.

    Attributes:
        event: its calls; None for one that was not called itself, and for what belongs to no module.
        path: of the module; None outside of all.
        bytes: by role.
    """

    event: ModuleEvent | None
    path: str | None
    bytes: Counter[str] = dataclasses.field(default_factory=Counter)


def _called_columns(trace: Trace) -> Columns:
    """A row for each call that the trace has, in order; then what had bytes without being called."""
    rows = [_ModuleRow(event, event.path) for event in trace.modules]
    places = group_by(rows, lambda row: row.path)
    for device, share, role in _list_shares(trace.memory):
        if share.module not in places:
            rows.append(_ModuleRow(None, share.module))
            places[share.module] = rows[-1:]
        _find_replica(places[share.module], device).bytes[role] += share.bytes
    columns = attribute_columns([row.event or _NOT_CALLED for row in rows], *_MODULE)
    sizes = _byte_columns(row.bytes for row in rows)
    return {"number": columns.pop("number")} | attribute_columns(rows, "path") | columns | sizes


def _find_replica(rows: list[_ModuleRow], device: DeviceId) -> _ModuleRow:
    """That which ran on the device, of several replicas of one module."""
    for row in rows:
        if row.event is not None and device in (*row.event.inputs, *row.event.outputs):
            return row
    return rows[0]


@dataclasses.dataclass(slots=True)
class _LineRow:
    """A line on one device.

    Attributes:
        device: where its results lie; None for what gives no tensor.
        site: the line; None for what was there before, or is unknown.
        bytes: by role, at the peak of the device.
        ops: what it ran there, in backward too.
    """

    device: DeviceId | None
    site: Site | None
    bytes: Counter[str] = dataclasses.field(default_factory=Counter)
    ops: list[OpEvent] = dataclasses.field(default_factory=list)


def _line_columns(trace: Trace) -> Columns:
    """A row for each line and device, that with the most bytes first."""
    lines: dict[object, _LineRow] = {}

    def find_line(device: DeviceId | None, site: Site | None) -> _LineRow:
        return lines.setdefault((device, site and site.place), _LineRow(device, site))

    for device, share, role in _list_shares(trace.memory):
        find_line(device, share.site).bytes[role] += share.bytes
    for op in trace.ops:
        find_line(op.output, op.site).ops.append(op)
    rows = sorted(lines.values(), key=lambda row: (-row.bytes.total(), -_sum_seconds(row.ops)))
    columns = attribute_columns(rows, "device", "site")
    columns |= {name: [] for name in ("library", "shape", "operators", "seconds", "backward_seconds")}
    for row in rows:
        library = row.site and row.site.library
        columns["library"].append(library and f"{library.file}:{library.line}")
        columns["shape"].append(next((op.shape for op in row.ops if op.shape), ()))
        columns["operators"].append(total(row.ops, "count"))
        columns["seconds"].append(_sum_seconds(row.ops))
        columns["backward_seconds"].append(_sum_seconds(op for op in row.ops if op.phase == "backward"))
    return columns | _byte_columns(row.bytes for row in rows)


def _sum_seconds(ops: Iterable[OpEvent]) -> float:
    """Time of the host that operators took, and what Python did before each."""
    return sum(op.seconds for op in ops)


def _memory_columns(trace: Trace) -> Columns:
    curves: list[MemoryCurve] = []
    points: list[MemoryPoint] = []
    for curve in trace.memory:
        curves += [curve] * len(curve.points)
        points += curve.points
    columns = attribute_columns(curves, "end.device", "end.name", "end.virtual", "end.total", "source")
    return columns | attribute_columns(points, "number", "phase", "module", "allocated", *ROLES, "site")


def finding_columns(findings: Iterable[Finding]) -> Columns:
    """One row for each finding."""
    findings = list(findings)
    names = ("kind", "severity", "module", "headline", "why", "notes", "also", "fault", "birth")
    return attribute_columns(findings, *names) | {"fix": list(map(_first_fix, findings))}


def _first_fix(finding: Finding) -> str:
    if finding.fixes:
        return finding.fixes[0].code or finding.fixes[0].summary
    return ""


def _replica_columns(trace: Trace) -> Columns:
    columns = attribute_columns(
        *(trace.replicas, "call", "wrapper", "number", "device", "samples", "input_bytes", "parameter_bytes", "buffer_bytes"),
        *("output_bytes", "gradient_bytes", "peak_bytes", "started", "seconds", "thread", "failed", "gathered_on"),
    )
    for name in ("inputs", "outputs"):
        columns[name] = [", ".join(map(piece_words, getattr(replica, name))) for replica in trace.replicas]
    return columns


def _collective_columns(trace: Trace) -> Columns:
    calls, groups = trace.collectives, [trace.groups[call.group] for call in trace.collectives]
    columns = attribute_columns(calls, "number", "kind", "sequence", "bytes", "module", "phase", "by", "peer")
    columns["group"] = list(map(attrgetter("label"), groups))
    return columns | attribute_columns(groups, "ranks") | attribute_columns(calls, "site")


_SITE = {"file": "file", "line": "line", "source_line": "text"}
"""Column -> field of a `site`."""


def attribute_columns(records: Iterable[Any], *names: str) -> Columns:
    """One column for each attribute, named by its last part; three for a `site`. One row for each record."""
    records = list(records)
    columns: Columns = {}
    for name in names:
        values = list(map(attrgetter(name), records))
        if name == "site":
            columns |= {column: [getattr(site, part, None) for site in values] for column, part in _SITE.items()}
        else:
            columns[name.rpartition(".")[2]] = list(map(as_text, values))
    return columns


def as_text(value: Any) -> Any:
    """Devices and places as text; a tuple of devices as one text; other values unchanged."""
    match value:
        case DeviceId():
            return str(value)
        case Site():
            return site_words(value)
        case (DeviceId(), *_):
            return device_list(value)
    return value


def columns_of_each(records: str, *names: str) -> Callable[[Any], Columns]:
    """Attributes of the records that are themselves an attribute."""
    return lambda record: attribute_columns(getattr(record, records), *names)


Tables = Mapping[str, Callable[[Any], Columns]]
"""Name of a table -> what makes its columns of a record; the first is the default."""
_tables: dict[type, Tables] = {}


def frame(kind: type, tables: Tables) -> None:
    """Give a kind of record its data frames."""
    _tables[kind] = tables
    presents("frame", kind)(make_frame)


frame(
    Snapshot,
    {
        "tensors": _tensor_columns,
        "modules": _module_columns,
        "memory": columns_of_each("memory", "device", "name", "card", "uuid", "virtual", "total", *CATEGORIES, "peak"),
    },
)
frame(
    Trace,
    {
        "moves": columns_of_each(
            *("moves", "number", "source", "target", "bytes", "count", "tensors", "shape", "dtype", "cause", "module", "phase"),
            *("seconds", "site"),
        ),
        "ops": columns_of_each("ops", "number", "name", "module", "phase", "inputs", "output", "count", "site"),
        "modules": _called_columns,
        "lines": _line_columns,
        "memory": _memory_columns,
        "findings": lambda trace: finding_columns(trace.findings),
        "replicas": _replica_columns,
        "collectives": _collective_columns,
        "waits": columns_of_each(
            *("waits", "call", "device", "count", "turns", "module", "phase", "in_step", "library", "meant", "called", "site")
        ),
    },
)
