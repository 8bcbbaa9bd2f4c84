"""The module tree as a page draws it: one entry for each column, packed, for 100,000 rows and more."""

from __future__ import annotations

import gzip
import json
import sys
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from devwidget.language.speaking import said, say
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message
from devwidget.report.style.units import format_bytes, format_count, some_bytes
from devwidget.report.style.words import dtype_words
from devwidget.views.overlay import Overlay, RowHop, RowMark, repeated_blocks
from devwidget.views.placement import PlacementTable, device_order

GRADIENT, ATTRIBUTE = 1, 2
"""Bits of the column `flags`: has a gradient at or below; is a tensor in a plain attribute."""

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
    """The rows, packed; texts are coded as numbers into a list of distinct texts.

    Numbers are little-endian: `u32` for codes, `u16` for depths, `u8` for flags. The codes of a column are under
    `column:<key>`; keys of an amount grow with it, so that they sort.
    """
    names, name = _code_values(table.names)
    classes, kind = _code_values(table.classes)
    devices, device = _code_values(table.devices, lambda row: list(map(str, table.devices_of(row))))
    dtypes, dtype = _code_values(table.dtypes, lambda row: list(table.dtypes_of(row)))
    packed: dict[str, Any] = {
        "rows": len(table),
        "names": names,
        "name": name,
        "classes": classes,
        "class": kind,
        "devices": devices,
        "device": device,
        "dtypes": dtypes,
        "dtype": dtype,
        "depth": pack_numbers("H", table.depths),
        "flags": pack_numbers("B", map(_flags, table.gradients, table.tensors)),
        "notes": {str(row): said(note) for row, note in enumerate(table.notes) if note},
        "heads": [],
    }
    coded = {
        "dtype": _code_values(table.dtypes, lambda row: _dtypes_words(table.dtypes_of(row))),
        "params": _code_ranked(_own_parameters(table), _count_words),
        "bytes": _code_ranked(table.bytes, some_bytes),
    }
    for key, title, cell, widths in _HEADS:
        texts: list[Any] = []
        if key in coded:
            texts, packed[f"column:{key}"] = coded[key]
        packed["heads"].append({"key": key, "title": said(title), "cell": cell, "widths": list(widths), "texts": texts})
    return packed


def _flags(gradient: int, tensor: object) -> int:
    return GRADIENT * bool(gradient) | ATTRIBUTE * (tensor is not None)


def mark_columns(table: PlacementTable, marks: Overlay) -> dict[str, Any]:
    """What a trace adds: `flow` codes into `flows` (devices in, devices out), rows with hops or findings, repeated blocks."""
    flows, flow = _code_values([])
    if marks.flows:
        shown = {row: _flow_names(flow) for row, flow in marks.flows.items()}
        flows, flow = _code_values([shown.get(row, ((), ())) for row in range(len(table))])
    return {
        "flows": flows,
        "flow": flow,
        "marks": {str(row): _pack_mark(mark) for row, mark in marks.marks.items()},
        "hops": {str(row): _pack_hops(own) for row, own in marks.hops.items()},
        "folds": {str(row): count for row, count in repeated_blocks(table, marks).items()},
    }


def _pack_hops(hops: dict[int, RowHop]) -> list[list[Any]]:
    return [[line, hop.count, format_bytes(hop.bytes)] for line, hop in hops.items()]


def _pack_mark(mark: RowMark) -> list[Any]:
    findings = [list(mark.findings), list(mark.findings_below), mark.severity, mark.severity_below]
    return [mark.hops, mark.hops_below, *findings]


def pack_numbers(kind: str, values: Iterable[float]) -> bytes:
    """Numbers as little-endian bytes."""
    numbers = array(kind, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _code_ranked(values: Sequence[int], shown: Callable[[int], str]) -> tuple[list[str], bytes]:
    """Distinct values from small to large in words, and the codes."""
    distinct = sorted(set(values))
    return list(map(shown, distinct)), _pack_codes(distinct, values)


def _code_values(values: Sequence[K], shown: Callable[[int], Any] | None = None) -> tuple[list[Any], bytes]:
    """Distinct values in order of appearance, as `shown` for the first row that has them, and the codes."""
    first_rows: dict[K, int] = {}
    for row, value in enumerate(values):
        first_rows.setdefault(value, row)
    texts = list(first_rows) if shown is None else list(map(shown, first_rows.values()))
    return texts, _pack_codes(first_rows, values)


def _pack_codes(distinct: Iterable[K], values: Sequence[K]) -> bytes:
    codes = {value: code for code, value in enumerate(distinct)}
    return pack_numbers("I", map(codes.__getitem__, values))


def _flow_names(flow: tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]) -> tuple[tuple[str, ...], ...]:
    into, out = flow
    return _device_names(into), _device_names(out)


def _device_names(devices: Iterable[DeviceId]) -> tuple[str, ...]:
    return tuple(map(str, sorted(devices, key=device_order)))


def pack_table(table: dict[str, Any]) -> dict[str, Any]:
    """The number of rows, and everything else in `packed`: the length of a JSON text (u32), that text, the columns.

    In the text a column is `[start, length]` of the bytes after it, under `columns`; all other values are unchanged.
    """
    # one block, because columns of 100,000 rows repeat themselves; `mtime=0`, so that equal tables are equal bytes
    facts: dict[str, Any] = {"columns": {}}
    block = b""
    for name, value in table.items():
        if isinstance(value, bytes):
            facts["columns"][name] = [len(block), len(value)]
            block += value
        else:
            facts[name] = value
    head = json.dumps(facts).encode()
    packed = gzip.compress(len(head).to_bytes(4, "little") + head + block, compresslevel=1, mtime=0)
    return {"rows": table["rows"], "packed": packed}
