"""How tensors, places, codes and parts of memory are called in every report, and how their columns are aligned."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from devwidget.language.speaking import said, say, template
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.parallel import Piece
from devwidget.records.runs import Runs, format_runs
from devwidget.records.schema.message import Message, change_facts
from devwidget.records.site import Site, cell_label, file_label
from devwidget.report.style.safe_text import columns_of, safe_text

_SHORT = {"bfloat16": "bf16", "bool": "bool", "complex64": "c64", "complex128": "c128"}


def dtype_words(dtype: str) -> str:
    """`float32` -> `f32`."""
    found = re.fullmatch(r"(u?int|float)(\d+)(.*)", dtype)
    return _SHORT.get(dtype) or (
        f"{found[1].replace('float', 'f').replace('int', 'i')}{found[2]}{found[3]}" if found else dtype
    )


def tensor_words(dtype: str, shape: tuple[int, ...] | None) -> str:
    """`f32[8, 512]`; `f32[?]` while the shape is unknown."""
    return f"{dtype_words(dtype)}[{'?' if shape is None else ', '.join(map(str, shape))}]"


def examples_words(examples: Sequence[tuple[str, tuple[int, ...]]], most: int, more: str = "…") -> str:
    """`f32[8, 512], i64[8], …`: the first tensors of several."""
    words = [tensor_words(*example) for example in examples[:most]]
    if len(examples) > most:
        words.append(more)
    return ", ".join(words)


def site_words(site: Site | None) -> str:
    """`train.py:41`, `In[5]:3` for a notebook cell, `train.py:41 (trainer.py:80)` where it has called a library; or ""."""
    if site is None:
        return ""
    return str(site)


def piece_words(piece: Piece) -> str:
    """`input[0:3]`: which part of a tensor a replica had."""
    return f"{piece.name}[{piece.start}:{piece.stop}]"


def file_words(file: str) -> str:
    """The file's name; the number of the cell for the names that IPython gives to cells."""
    return file_label(file)


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


def row_words(parts: Iterable[str], between: str = ", ") -> str:
    """Parts behind each other, with the comma or semicolon of the language between them; empty ones are left out."""
    mark = template(f"{{first}}{between}{{second}}").removeprefix("{first}").removesuffix("{second}")
    return mark.join(part for part in parts if part)


def device_list(devices: Iterable[DeviceId]) -> str:
    """`cuda:0, cuda:1`."""
    return ", ".join(map(str, devices))


def first_line(site: Site | None) -> str:
    """The source at a place on one line, of the library where one stands there; "" if it is not at hand."""
    if site:
        return " ".join((site.library or site).text.split())
    return ""


def translate_finding(finding: Finding) -> Finding:
    """The finding in the language of reports, with a notebook cell called by its number where a rule wrote Python's name."""
    names = {str(site): site_words(site) for site in (finding.fault, finding.birth) if site is not None}

    def name_places(text: str) -> str:
        for old, new in names.items():
            text = text.replace(old, new)
        return text

    def translate_text(text: str) -> str:
        return said(change_facts(text, name_places))

    fixes = tuple(dataclasses.replace(fix, summary=said(fix.summary)) for fix in finding.fixes)
    headline, why, notes = (
        translate_text(finding.headline),
        translate_text(finding.why),
        tuple(map(translate_text, finding.notes)),
    )
    return dataclasses.replace(finding, headline=headline, why=why, notes=notes, fixes=fixes)


def label_line(label: str, text: str) -> str:
    """`  where: layers.0, train.py:41`: texts below each other begin in one column; a Chinese letter is two columns wide."""
    start = say("{label}:", label=label)
    return f"  {start}{' ' * max(1, 7 - columns_of(start))}{text}"


def mentions_place(finding: Finding, place: str) -> bool:
    """Whether the words of a finding already name a place."""
    return any(place in text for text in (finding.headline, finding.why, *finding.notes))


CODES: dict[str, Message] = {
    str(each): each
    for each in (
        *(Message("error"), Message("warning"), Message("info")),
        *(Message("build"), Message("forward"), Message("loss"), Message("backward"), Message("optimizer"), Message("other")),
        *(Message("explicit"), Message("scatter"), Message("replicate"), Message("gather"), Message("reduce")),
        *(Message("healed"), Message("hook")),
        *(Message("parameter"), Message("buffer"), Message("attribute")),
        *(Message("answered"), Message("hung"), Message("busy"), Message("stopped"), Message("stale"), Message("dead")),
        *(Message("raised"), Message("terminated"), Message("ended"), Message("unknown")),
        *(Message("tensor parallel"), Message("device map"), Message("as is"), Message("data parallel"), Message("auto")),
        *(Message("input gradient"), Message("weight gradient"), Message("forward and backward")),
        *(Message("parameters and buffers"), Message("allocated"), Message("peak")),
    )
}
"""Code -> its word."""


def code_word(code: str) -> str:
    """A code in the language of reports; a name stays as it is."""
    return said(CODES.get(code, code))


_NAMES = {
    "attributes": Message("plain attributes"),
    "optimizer": Message("optimizer state"),
    "inputs": Message("batch"),
    "gathered": Message("gathered outputs"),
    "other": Message("temporaries"),
    "foreign": Message("other models and tensors"),
    "outside": Message("tensors outside this model"),
    "running": Message("activations and other new tensors"),
    "others": Message("context, other processes"),
    "parameters": Message("parameters"),
    "buffers": Message("buffers"),
    "gradients": Message("gradients"),
    "activations": Message("activations"),
    "cache": Message("cache"),
    "free": Message("free"),
}


def part_name(part: str) -> str:
    """The word for a part of memory."""
    return said(_NAMES.get(part, part))


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
    safe = [[safe_text(cell) for cell in row] for row in rows]
    for most in (_WIDEST, *range(_WIDEST - 4, 11, -4)):
        cut = [[*(shorten_text(cell, most) for cell in row[:-1]), row[-1]] for row in safe]
        widths = [max(columns_of(cell) for cell in column) for column in zip(*cut, strict=True)]
        room = widest - len(indent) - sum(width + 2 for width in widths[:-1])
        if not widest or min(widths[-1], _LEAST_LAST) <= room:
            break
    for row in cut:
        cells = [
            " " * (width - columns_of(cell)) + cell if at in right else cell + " " * (width - columns_of(cell))
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = (indent + "  ".join(cells)).rstrip()
        yield cut_line(line, widest) if widest else line


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
    """`src/model.py` for a file below `root`, the whole path for another, "" for a cell of a notebook."""
    if cell_label(file) or file.startswith("<"):
        return ""
    path, folder = os.path.realpath(file), os.path.realpath(root)
    if os.path.splitdrive(path)[0] == os.path.splitdrive(folder)[0]:
        inside = os.path.commonpath([path, folder]) == folder
    else:
        inside = False
    return pathlib.Path(os.path.relpath(path, folder) if inside else path).as_posix()
