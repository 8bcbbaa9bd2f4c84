"""A snapshot as text: one line for the model, a bar for each device, the module tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from devwidget.language.speaking import both, said, say, say_count
from devwidget.records.device import DeviceId
from devwidget.records.schema.message import Message, in_row
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.draw_page import writes
from devwidget.report.report_parts import GAP, Part, Sentence, Table
from devwidget.report.style.units import count_words, format_bytes, format_count, some_bytes
from devwidget.report.style.words import device_list, dtype_words, row_words
from devwidget.views.memory import MemoryBar, memory_bars
from devwidget.views.placement import PlacementTable, device_order, tabulate_snapshot

_MOST_ROWS = 60
_BAR_CELLS = 24


@writes(Snapshot)
def snapshot_parts(snapshot: Snapshot, trace: Trace | None = None) -> Iterator[Part]:
    """The model, its devices, and its tree, cut below the depth that fits."""
    table = tabulate_snapshot(snapshot)
    yield Sentence(snapshot_headline(snapshot, table), "verdict")
    bars = [(str(bar.device), _unicode_bar(bar), bar_words(bar)) for bar in memory_bars(snapshot.memory, trace)]
    if bars:
        yield Table(bars, has_heading=False)
    yield GAP
    rows = _shown_rows(table, _MOST_ROWS)
    heads = (say("module"), say("class"), say("device"), "dtype", say("parameters"), say("bytes"), "")
    yield Table([heads, *(_tree_cells(table, row) for row in rows)], right=(4, 5), indent="")
    if len(rows) < len(table):
        yield Sentence(say("and {count} more", count=count_words(len(table) - len(rows), "row")))


def snapshot_headline(snapshot: Snapshot, table: PlacementTable) -> str:
    """Class, parameters, bytes and bytes by device."""
    if not len(table):
        return say("an empty model")
    number = table.parameters[0]
    parts = [
        table.classes[0],
        say_count(*both("{count} parameter", "{count} parameters"), number, format_count(number)),
        format_bytes(table.bytes[0]),
        ", ".join(f"{device} {format_bytes(size)}" for device, size in bytes_by_device(snapshot).items()),
    ]
    if snapshot.virtual_gpus:
        parts.append(say("virtual GPUs: {count}", count=snapshot.virtual_gpus))
    return " · ".join(filter(None, parts))


def bytes_by_device(snapshot: Snapshot) -> dict[DeviceId, int]:
    """Bytes of the model's storages on each device, each storage once."""
    seen: set[int] = set()
    sizes: dict[DeviceId, int] = {}
    for module in snapshot.modules:
        for tensor in module.tensors:
            sizes.setdefault(tensor.device, 0)
            if tensor.storage not in seen:
                seen.add(tensor.storage)
                sizes[tensor.device] += tensor.storage_bytes or tensor.bytes
    return {device: sizes[device] for device in sorted(sizes, key=device_order)}


def _unicode_bar(bar: MemoryBar) -> str:
    """Full and light blocks; a device in use never looks empty."""
    full = min(round(_BAR_CELLS * bar.used / max(bar.total, 1)), _BAR_CELLS)
    if bar.used:
        full = max(full, 1)
    return "█" * full + "░" * (_BAR_CELLS - full)


def bar_words(bar: MemoryBar) -> str:
    """`3.10 GiB in use, 3.50 GiB reserved of 8.00 GiB, peak 4.20 GiB`."""
    parts = [in_use_words(bar), reserved_words(bar)]
    if bar.known_total and bar.reserved <= bar.in_use:
        parts = [say("{used} {capacity}", used=parts[0], capacity=parts[1])]
    if bar.peak > bar.in_use:  # else more is in use now than in the whole trace
        parts.append(say("peak {size}", size=format_bytes(bar.peak)))
    return row_words(parts)


def in_use_words(bar: MemoryBar) -> str:
    """What live tensors take."""
    return say("{size} in use", size=format_bytes(bar.in_use))


def reserved_words(bar: MemoryBar) -> str:
    """What the allocator holds of the device's memory; "" where neither is known."""
    if not bar.known_total:
        return ""
    total = format_bytes(bar.total)
    if bar.reserved > bar.in_use:
        return say("{size} reserved of {total}", size=format_bytes(bar.reserved), total=total)
    return say("of {total}", total=total)


def _shown_rows(table: PlacementTable, most: int) -> list[int]:
    """Rows down to the deepest level that fits `most`; of a level that alone is too large, its first rows."""
    counts = Counter(table.depths)
    deepest, size = 0, counts[0]
    while counts[deepest + 1] and size + counts[deepest + 1] <= most:
        deepest += 1
        size += counts[deepest]
    deepest = max(deepest, 1)
    return [row for row, depth in enumerate(table.depths) if depth <= deepest][:most]


def _tree_cells(table: PlacementTable, row: int) -> tuple[str, ...]:
    """Name, class, devices, dtypes, parameters and bytes of a row, and what a reader should know of it."""
    name, class_name = "  " * table.depths[row] + table.names[row], table.classes[row]
    if not row:
        class_name = ""
    note, parameters = table.notes[row], ""
    if table.tensors[row] is not None:
        note = in_row((Message("plain attribute"), note), "; ")
    if table.parameters[row]:
        parameters = format_count(table.parameters[row])
    dtypes = ", ".join(map(dtype_words, table.dtypes_of(row)))
    devices = device_list(table.devices_of(row))
    return name, class_name, devices, dtypes, parameters, some_bytes(table.bytes[row]), said(note)
