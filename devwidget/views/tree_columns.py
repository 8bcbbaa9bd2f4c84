"""The tree and its marks as packed columns: what a screen needs to draw 100,000 rows."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from devwidget.records.device import DeviceId
from devwidget.views.overlay import SEVERITIES, Overlay
from devwidget.views.placement import Placement, device_order

GRADIENT, ATTRIBUTE = 1, 2
"""Bits of the column `flags`: has a gradient at or below; is a tensor in a plain attribute."""

K = TypeVar("K", bound=Hashable)


def tree_columns(table: Placement) -> dict[str, Any]:
    """Columns of a placement; texts are coded as numbers into a list of distinct texts.

    Numbers are little-endian: `u32` for codes and parents, `u16` for depths, `f64` for sums, `u8` for flags.
    """
    names, name = _coded(table.names)
    classes, kind = _coded(table.classes)
    flags = [(GRADIENT if grad else 0) | (ATTRIBUTE if tensor else 0) for grad, tensor in _flagged(table)]
    devices, device = _coded(table.devices, lambda row: [str(each) for each in table.devices_of(row)])
    dtypes, dtype = _coded(table.dtypes, lambda row: list(table.dtypes_of(row)))
    return {
        "rows": len(table),
        "names": names,
        "name": name,
        "classes": classes,
        "class": kind,
        "devices": devices,
        "device": device,
        "dtypes": dtypes,
        "dtype": dtype,
        "depth": packed("H", table.depths),
        "parameters": packed("d", table.parameters),
        "bytes": packed("d", table.bytes),
        "flags": packed("B", flags),
        "notes": {str(row): note for row, note in enumerate(table.notes) if note},
    }


def mark_columns(table: Placement, marks: Overlay) -> dict[str, Any]:
    """What a trace adds: `flow` codes into `flows` (0 for none), and the few rows with hops or findings."""
    texts = {row: _flow_words(flow) for row, flow in marks.flows.items()}
    flows, flow = _coded([texts.get(row, "") for row in range(len(table))] if texts else [])
    return {
        "flows": flows,
        "flow": flow,
        "marks": {
            str(row): [
                mark.hops,
                mark.hops_below,
                list(mark.findings),
                list(mark.findings_below),
                _rank(mark.severity),
                _rank(mark.severity_below),
            ]
            for row, mark in marks.marks.items()
        },
    }


def packed(kind: str, values: Iterable[float]) -> bytes:
    """Numbers as little-endian bytes."""
    numbers = array(kind, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _coded(values: list[K], shown: Callable[[int], Any] | None = None) -> tuple[list[Any], bytes]:
    """Distinct values in order of appearance, as `shown` for the first row that has them, and the codes."""
    codes: dict[K, int] = {}
    texts: list[Any] = []
    column = array("I")
    for row, value in enumerate(values):
        code = codes.get(value)
        if code is None:
            code = codes[value] = len(texts)
            texts.append(value if shown is None else shown(row))
        column.append(code)
    return texts, packed("I", column)


def _flagged(table: Placement) -> Iterable[tuple[int, bool]]:
    return zip(table.gradients, (tensor is not None for tensor in table.tensors), strict=True)


def _flow_words(flow: tuple[tuple[DeviceId, ...], tuple[DeviceId, ...]]) -> str:
    into, out = map(_side, flow)
    return f"{into} → {out}"


def _side(devices: tuple[DeviceId, ...]) -> str:
    if len(devices) > 2:
        return f"{len(devices)} devices"
    return " ".join(map(str, sorted(devices, key=device_order))) or "–"


def _rank(severity: str) -> int:
    """0 for none, 3 for an error."""
    return 0 if not severity else 1 + [*SEVERITIES].index(severity)  # type: ignore[arg-type]  # a str from RowMark
