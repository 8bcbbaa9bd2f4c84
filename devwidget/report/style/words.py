"""How tensors, places, codes and parts of memory are called in every report, and how their columns are aligned."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from devwidget.language.speaking import said, say, template
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.held_memory import MemoryHolder
from devwidget.records.parallel import Piece
from devwidget.records.runs import Runs, format_runs
from devwidget.records.schema.message import Message
from devwidget.records.site import Site, cell_label
from devwidget.report.style.safe_text import columns_of, safe_text
from devwidget.report.style.units import format_bytes

_SHORT = {"bfloat16": "bf16", "bool": "bool", "complex64": "c64", "complex128": "c128"}


def dtype_words(dtype: str) -> str:
    """`float32` -> `f32`."""
    found = re.fullmatch(r"(u?i|f)(?:nt|loat)(\d+.*)", dtype)
    if found:
        return found[1] + found[2]
    return _SHORT.get(dtype, dtype)


def tensor_words(dtype: str, shape: tuple[int, ...] | None) -> str:
    """`f32[8, 512]`; `f32[?]` while the shape is unknown."""
    if shape is None:
        return f"{dtype_words(dtype)}[?]"
    return f"{dtype_words(dtype)}[{', '.join(map(str, shape))}]"


def examples_words(examples: Sequence[tuple[str, tuple[int, ...]]], most: int) -> str:
    """`f32[8, 512], i64[8], …`: the first tensors of several."""
    words = list(itertools.starmap(tensor_words, examples[:most]))
    if len(examples) > most:
        words.append("…")
    return ", ".join(words)


def site_words(site: Site | None) -> str:
    """`train.py:41`, `In[5]:3` for a notebook cell, `train.py:41 (trainer.py:80)` where it has called a library; or ""."""
    if site is None:
        return ""
    return str(site)


def name_holder(holder: MemoryHolder) -> Message:
    """Return ``list `losses` in train()``."""
    facts = {"kind": holder.kind, "name": holder.name}
    if holder.function:
        return Message("{kind} `{name}` in {function}()", **facts, function=holder.function)
    return Message("{kind} `{name}`", **facts)


def piece_words(piece: Piece) -> str:
    """`input[0:3]`: which part of a tensor a replica had."""
    return f"{piece.name}[{piece.start}:{piece.stop}]"


def module_words(path: str | None) -> str:
    """A module's path in words."""
    if path is None:
        return say("outside the model")
    return path or say("the model itself")


def ranks_words(runs: Runs) -> str:
    """`rank 3`, `ranks 0-7, 12`."""
    return said(format_runs(runs))


def and_more(first: str, others: int) -> str:
    """`layers.0 and 3 more`."""
    if others:
        return say("{first} and {count} more", first=first, count=others)
    return first


def modules_words(modules: Sequence[str | None]) -> str:
    """`layers.0 and 3 more`."""
    return and_more(module_words(modules[0]), len(modules) - 1)


def row_words(parts: Iterable[str], between: str = ", ") -> str:
    """Parts behind each other, with the comma or semicolon of the language between them; empty ones are left out."""
    mark = template(f"{{first}}{between}{{second}}").removeprefix("{first}").removesuffix("{second}")
    return mark.join(filter(None, parts))


def device_list(devices: Iterable[DeviceId]) -> str:
    """`cuda:0, cuda:1`."""
    return ", ".join(map(str, devices))


def first_line(site: Site | None) -> str:
    """The source at a place on one line, that of the library where it has called one; "" if it is not at hand."""
    if site:
        return " ".join((site.library or site).text.split())
    return ""


def place_words(site: Site | None) -> str:
    """Return `train.py:41  y = self.head(h)`: a place and its source, if known."""
    return "  ".join(filter(None, (site_words(site), first_line(site))))


def translate_finding(finding: Finding) -> Finding:
    """The finding in the language of reports."""
    fixes = tuple(dataclasses.replace(fix, summary=said(fix.summary)) for fix in finding.fixes)
    notes = tuple(map(said, finding.notes))
    return dataclasses.replace(finding, headline=said(finding.headline), why=said(finding.why), notes=notes, fixes=fixes)


def label_line(label: str, text: str) -> str:
    """`  where: layers.0, train.py:41`: texts below each other begin in one column; a Chinese letter is two columns wide."""
    start = say("{label}:", label=label)
    return f"  {start}{' ' * max(1, 7 - columns_of(start))}{text}"


def mentions_place(finding: Finding, place: str) -> bool:
    """Whether the words of a finding already name a place."""
    return any(place in text for text in (finding.headline, finding.why, *finding.notes))


CODES = (
    "error", "warning", "info", "build", "forward", "loss", "backward", "optimizer", "other", "scatter", "replicate", "gather",
    "reduce", "hook", "parameter", "buffer", "attribute", "likely", "choice",
)  # fmt: skip
"""Codes of the core that are words of the language of reports."""
_SPOKEN = {"explicit": "moved", "healed": "by devwidget"}


def code_word(code: str) -> str:
    """Return a code in the language of reports. A name is returned unchanged."""
    return said(_SPOKEN.get(code, code))


PARTS = {
    "parameters": "parameters",
    "buffers": "buffers",
    "attributes": "plain attributes",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "inputs": "batch",
    "gathered": "gathered outputs",
    "other": "temporaries",
    "foreign": "other models and tensors",
    "outside": "tensors outside this model",
    "running": "activations and other new tensors",
    "others": "context, other processes",
    "cache": "cache",
    "graph": "graph",
    "free": "free",
}


def part_name(part: str) -> str:
    """The word for a part of memory."""
    return said(PARTS.get(part, part))


def parts_words(parts: Iterable[tuple[str, int]]) -> str:
    """`parameters 1.00 MiB, cache 2.0 KiB`."""
    return row_words(f"{part_name(part)} {format_bytes(size)}" for part, size in parts)


_WIDEST = 60
_LEAST_LAST = 12
"""Columns that are left for the last cell where others are cut for it."""


def align_columns(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = "", widest: int = 0
) -> Iterator[str]:
    """Lines with two spaces between the columns; `right` names the columns that end at the same place.

    The last column is not padded, and every other cell is cut at 60 characters. Where lines may have `widest` columns, the
    longest cells are cut further, and then the last one.
    """
    safe = [list(map(safe_text, row)) for row in rows]
    for most in (_WIDEST, *range(_WIDEST - 4, 11, -4)):
        cut = [[*(shorten_text(cell, most) for cell in row[:-1]), row[-1]] for row in safe]
        widths = [max(map(columns_of, column)) for column in zip(*cut, strict=True)]
        room = widest - len(indent) - sum(widths[:-1]) - 2 * len(widths[:-1])
        if not widest or min(widths[-1], _LEAST_LAST) <= room:
            break
    for row in cut:
        line = indent
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - columns_of(cell))
            line += f"{gap}{cell}  " if at in right else f"{cell}{gap}  "
        line = line.rstrip()
        if widest:
            line = cut_line(line, widest)
        yield line


def cut_line(text: str, most: int) -> str:
    """The beginning of a text that takes more than `most` columns."""
    if columns_of(text) <= most:
        return text
    kept = text[:most]
    while columns_of(kept) >= most:
        kept = kept[:-1]
    return f"{kept}…"


def wrap_list(text: str, most: int) -> Iterator[str]:
    """A text with commas as lines of at most `most` columns, as far as its parts let it; all but the first indented."""
    line, *parts = text.split(", ")
    for part in parts:
        if columns_of(f"{line}, {part},") > most:
            yield f"{line},"
            line = f"  {part}"
        else:
            line = f"{line}, {part}"
    yield line


def shorten_text(text: str, most: int) -> str:
    """Text of at most `most` characters, its middle left out."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"


def path_of(file: str, root: str | pathlib.Path) -> str:
    """`src/model.py` for a file below `root`, the full path for another, "" for a cell of a notebook."""
    if cell_label(file) or file.startswith("<"):
        return ""
    path, folder = pathlib.Path(file).resolve(), pathlib.Path(root).resolve()
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return path.as_posix()
