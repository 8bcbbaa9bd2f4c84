"""Brings the catalogues up to the messages of the package: `make words`, after which new ones wait in the .po files.

What is translated is seen often: the panel, findings, reports, and what ends in a panel or a report of an error. Commands,
virtual GPUs, the extras, what is said of memory, shards and single tensors, and errors about arguments and files are English.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from devwidget.language import speaking
from devwidget.records.schema.message import ROWS
from devwidget.report.style.words import CODES, PARTS

PACKAGE = speaking.CATALOGUES.parents[1]
SCRIPTS = "panel/static/*.js"
FOLDERS = "language panel records/schema report rules views".split()
FILES = ("*.py", "records/*.py")
ENGLISH = (
    "pytest_*.py", "magics.py", "allowed_findings.py", "apply_fix.py", "fix_writer.py",
    "records/schema/paths.py", "records/schema/public_calls.py", "rules/placement/mixed_dtensor.py",
    "report/data_frames.py", "report/figures/as_plotly.py", "report/page/exports.py",
    "report/page/parallel_cards.py", "report/text/advice.py", "report/text/memory_text.py",
)  # fmt: skip
METHODS = [
    *((file, "ignore") for file in ENGLISH),
    *((pattern, "python") for pattern in (*FILES, *(f"{folder}/**.py" for folder in FOLDERS))),
    (SCRIPTS, "javascript"),
]
OPTIONS = {SCRIPTS: {"parse_template_string": "true"}}
KEYWORDS = {"Message": None, "say": None, "both": (1, 2), "word": None, "sayCount": (1, 2)}
NOUNS = (
    "call", "device", "error", "finding", "hint", "hop", "kind", "module", "module call", "operator", "replica", "row",
    "sample", "sync", "transfer", "virtual GPU", "warning",
)  # fmt: skip
"""What `count_words` counts in the core."""
OF_COUNTS = {"of": (2, 3)}
"""`Message.of(count, one, many)`: two messages, each of which says all."""


def messages() -> Iterator[str | tuple[str, str]]:
    """The templates that the package has, in the order of its files; two where things are counted."""
    for _, _, message, _, _ in extract_from_dir(PACKAGE, METHODS, OPTIONS, keywords=KEYWORDS):
        yield message if isinstance(message, str) else (message[0], message[1])
    yield from (*ROWS.values(), *CODES, *PARTS.values(), "moved", "by devwidget")
    for noun in NOUNS:
        yield f"{{count}} {noun}", f"{{count}} {noun}s"
    for _, _, counted, _, _ in extract_from_dir(PACKAGE, METHODS[:1], OPTIONS, keywords=OF_COUNTS):
        yield from counted


def files() -> set[str]:
    """Those that have such messages, under the package."""
    return {file for file, *_ in extract_from_dir(PACKAGE, METHODS, OPTIONS, keywords=KEYWORDS)}


def catalogues() -> list[Path]:
    """The .po file of each language."""
    return sorted(speaking.CATALOGUES.glob(f"*/LC_MESSAGES/{speaking.DOMAIN}.po"))


def read(file: Path) -> Catalog:
    """A catalogue, with its headers."""
    with file.open("rb") as opened:
        return read_po(opened, locale=file.parents[1].name)


def compiled(catalog: Catalog) -> bytes:
    """What gettext reads."""
    written = io.BytesIO()
    write_mo(written, catalog)
    return written.getvalue()


def bring_up(file: Path) -> None:
    """New messages join a catalogue, old ones leave it, and it is compiled beside."""
    template = Catalog(fuzzy=False)
    for message in messages():
        template.add(message)
    catalog = read(file)
    catalog.update(template, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    for each in catalog:
        if each.id:
            each.flags.clear()  # which format a message has is told by its facts, and held by the tests
    with file.open("wb") as opened:
        write_po(opened, catalog, width=128, sort_output=True)
    file.with_suffix(".mo").write_bytes(compiled(read(file)))


if __name__ == "__main__":
    for each in catalogues():
        bring_up(each)
