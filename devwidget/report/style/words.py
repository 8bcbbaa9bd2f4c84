"""How tensors, places and devices are called in every report."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from devwidget.language.speaking import said, say, template
from devwidget.records.device import DeviceId
from devwidget.records.finding import Finding
from devwidget.records.parallel import Piece
from devwidget.records.ranks.cluster import Runs
from devwidget.records.ranks.runs import in_words
from devwidget.records.schema.message import changed
from devwidget.records.site import Site, cell_label
from devwidget.report.style.safe_text import columns_of

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


def site_words(site: Site | None) -> str:
    """`train.py:41`, `In[5]:3` for a notebook cell, `train.py:41 (trainer.py:80)` where it has called a library; or ""."""
    if site is None:
        return ""
    place, library = f"{file_words(site.file)}:{site.line}", site.library
    return place if library is None or not site.is_users else f"{place} ({file_words(library.file)}:{library.line})"


def piece_words(piece: Piece) -> str:
    """`input[0:3]`: which part of a tensor a replica had."""
    return f"{piece.name}[{piece.start}:{piece.stop}]"


def file_words(file: str) -> str:
    """The file's name; the number of the cell for the names that IPython gives to cells."""
    return cell_label(file) or file.replace("\\", "/").rsplit("/", 1)[-1]


def module_words(path: str | None) -> str:
    """A module's path in words."""
    return say("outside the model") if path is None else path or say("the model itself")


def ranks_words(runs: Runs) -> str:
    """`rank 3`, `ranks 0-7, 12`."""
    return said(in_words(runs))


def and_more(first: str, others: int) -> str:
    """`layers.0 and 3 more`."""
    return say("{first} and {count} more", first=first, count=others) if others else first


def row_words(parts: Iterable[str], between: str = ", ") -> str:
    """Parts behind each other, with the comma or semicolon of the language between them; empty ones are left out."""
    mark = template(f"{{first}}{between}{{second}}").removeprefix("{first}").removesuffix("{second}")
    return mark.join(part for part in parts if part)


def device_list(devices: Iterable[DeviceId]) -> str:
    """`cuda:0, cuda:1`."""
    return ", ".join(map(str, devices))


def first_line(site: Site | None) -> str:
    """The source at a place on one line, of the library where one stands there; "" if it is not at hand."""
    return " ".join((site.library or site).text.split()) if site else ""


def spoken(finding: Finding) -> Finding:
    """The finding in the language of reports, with a notebook cell called by its number where a rule wrote Python's name."""
    names = {str(site): site_words(site) for site in (finding.fault, finding.birth) if site is not None}

    def named(text: str) -> str:
        for old, new in names.items():
            text = text.replace(old, new)
        return text

    def told(text: str) -> str:
        return said(changed(text, named))

    fixes = tuple(dataclasses.replace(fix, summary=said(fix.summary)) for fix in finding.fixes)
    headline, why, notes = told(finding.headline), told(finding.why), tuple(map(told, finding.notes))
    return dataclasses.replace(finding, headline=headline, why=why, notes=notes, fixes=fixes)


def labelled(label: str, text: str) -> str:
    """`  where: layers.0, train.py:41`: texts below each other begin in one column; a Chinese letter is two columns wide."""
    start = say("{label}:", label=label)
    return f"  {start}{' ' * max(1, 7 - columns_of(start))}{text}"


def mentions(finding: Finding, place: str) -> bool:
    """Whether the words of a finding already name a place."""
    return any(place in text for text in (finding.headline, finding.why, *finding.notes))
