"""The module tree as a page draws it: each distinct name and look once, so that 100,000 rows and more travel as numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.records.runs import runs_of
from devwidget.records.schema.message import Message
from devwidget.report.style.units import format_bytes, format_count, some_bytes
from devwidget.report.style.words import dtype_words
from devwidget.views.overlay import Overlay, RowMark, repeated_blocks
from devwidget.views.placement import PlacementTable, device_order
from devwidget.views.sums import group_by

K = TypeVar("K", bound=Hashable)


def _own_parameters(table: PlacementTable) -> list[int]:
    """-1 for a tensor in a plain attribute."""
    return [number if tensor is None else -1 for number, tensor in zip(table.parameters, table.tensors, strict=True)]


def _count_words(number: int) -> str:
    if number < 0:
        return say("(attr)")
    if number:
        return format_count(number)
    return ""


def _dtypes_words(dtypes: Sequence[str]) -> str:
    """Two of them, or the first and how many others: more would be cut."""
    first, *others = map(dtype_words, dtypes or [""])
    if len(others) > 1:
        return f"{first} +{len(others)}"
    return " ".join([first, *others])


_HEADS = (
    ("module", Message("module"), "name", ("minmax(180px, 2.3fr)", "minmax(170px, 3fr)", "minmax(96px, 2fr)")),
    ("device", Message("device"), "devices", ("minmax(156px, 1.3fr)", "minmax(112px, 1fr)", "minmax(106px, 1.5fr)")),
    ("dtype", "dtype", "words", ("76px", "74px", "74px")),
    ("params", Message("params"), "amount", ("76px", "", "")),
    ("bytes", Message("bytes"), "amount", ("80px", "78px", "78px")),
    ("flow", Message("in → out"), "flow", ("minmax(168px, 1fr)", "minmax(92px, 0.7fr)", "minmax(92px, 1.5fr)")),
    ("notes", Message("notes"), "notes", ("minmax(164px, 1.5fr)", "minmax(150px, 1.5fr)", "minmax(62px, 1fr)")),
)
"""Key, title, how cells are drawn, and CSS grid tracks for a wide, a narrow and a very narrow table; "" hides it there."""


def tree_table(table: PlacementTable) -> dict[str, Any]:
    """For each row which of `names` it has, and which of `kinds`: what else it shows. A column sorts by its `amounts`."""
    first_rows, name = _code_values(table.names)
    names = [table.names[row] for row in first_rows]
    parameters, gradients = _own_parameters(table), list(map(bool, table.gradients))
    columns = (table.classes, table.depths, table.devices, table.dtypes, parameters, table.bytes, gradients, table.notes)
    first_rows, kind = _code_values(list(zip(*columns, strict=True)))
    kinds = [_show_row(table, row, parameters[row]) for row in first_rows]
    heads = [{"key": key, "title": said(title), "cell": cell, "widths": list(widths)} for key, title, cell, widths in _HEADS]
    return {"names": names, "name": name, "kinds": kinds, "kind": kind, "heads": heads}


def _show_row(table: PlacementTable, row: int, parameters: int) -> dict[str, Any]:
    dtypes = table.dtypes_of(row)
    return {
        "class": table.classes[row],
        "depth": table.depths[row],
        "devices": list(map(str, table.devices_of(row))),
        "device_runs": _device_runs(table.devices_of(row)),
        "dtypes": list(dtypes),
        "note": said(table.notes[row]),
        "has_gradient": bool(table.gradients[row]),
        "is_attribute": table.tensors[row] is not None,
        "texts": {
            "dtype": _dtypes_words(dtypes),
            "params": _count_words(parameters),
            "bytes": some_bytes(table.bytes[row]),
        },
        "amounts": {"params": parameters, "bytes": table.bytes[row]},
    }


def _device_runs(devices: Iterable[DeviceId]) -> str:
    """`cuda:0-7 cpu`, in which devices whose numbers follow each other are one; for rows with too many for a chip each."""
    words = []
    for kind, alike in group_by(devices, lambda device: device.kind).items():
        runs = runs_of(device.index for device in alike if device.index is not None)
        numbers = (str(first) if first == last else f"{first}-{last}" for first, last in runs)
        words += [f"{kind}:{number}" for number in numbers] or [kind]
    return " ".join(words)


def mark_columns(table: PlacementTable, marks: Overlay) -> dict[str, Any]:
    """What a trace adds: for each row which of `flows` (devices in, out) it has; hops, findings, repeated blocks."""
    flows = [marks.flows.get(row, ((), ())) for row in range(len(table))]
    first_rows, flow = _code_values(flows)
    return {
        "flows": [_flow_names(flows[row]) for row in first_rows],
        "flow": flow,
        "marks": {str(row): _pack_mark(mark) for row, mark in marks.marks.items()},
        "hops": {str(row): _pack_hops(own) for row, own in marks.hops.items()},
        "folds": {str(row): count for row, count in repeated_blocks(table, marks).items()},
    }


def _pack_hops(hops: dict[int, tuple[int, int]]) -> list[list[Any]]:
    return [[line, count, format_bytes(size)] for line, (count, size) in hops.items()]


def _pack_mark(mark: RowMark) -> list[Any]:
    findings = [list(mark.findings), list(mark.findings_below), mark.severity, mark.severity_below]
    return [mark.hops, mark.hops_below, *findings]


def _code_values(values: Sequence[K]) -> tuple[list[int], list[int]]:
    """For each distinct value the first row that has it, and for each row which of them it has."""
    first_rows: list[int] = []
    codes: dict[K, int] = {}
    for row, value in enumerate(values):
        if codes.setdefault(value, len(first_rows)) == len(first_rows):
            first_rows.append(row)
    return first_rows, [codes[value] for value in values]


def _flow_names(flow: tuple[tuple[DeviceId, ...], ...]) -> list[list[str]]:
    return [_device_names(devices) for devices in flow]


def _device_names(devices: Iterable[DeviceId]) -> list[str]:
    return list(map(str, sorted(devices, key=device_order)))
