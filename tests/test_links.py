"""Links of the pages and the notebooks, as a forge shows them: files and anchors exist, outer addresses have their form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urldefrag

import devwidget

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "notebooks").rglob("*.ipynb")])
FOLDERS_OF_PAGES = ("docs", "tests", "benchmarks")
PAGES += sorted(
    page for folder in FOLDERS_OF_PAGES for page in (ROOT / folder).rglob("*.md") if "node_modules" not in page.parts
)
PACKAGE = Path(devwidget.__file__).parent  # of the wheel, where that is tested
FOLDERS = (PACKAGE, *map(ROOT.joinpath, ("benchmarks", "docs", "notebooks")))
PROGRAMS = [ROOT / name for name in ("Makefile", "noxfile.py", "pyproject.toml")]
PROGRAMS += [file for folder in FOLDERS for file in folder.rglob("*.py")]
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"|<(https?:[^>\s]+)>")
NAMED = re.compile(
    r"(?<![\w/.-])(?:docs|notebooks|tests|benchmarks|binder|devwidget|\.ci)/[\w./-]+\.(?:py|md|ipynb|json|toml|yml)\b"
)
"""A file of the repository, by its path."""
ADDRESS = re.compile(r"https?://[^\s)>`\"';,\\]+[^\s)>`\"';,.\\]")


def text_of(page: Path) -> str:
    """What somebody wrote: of a notebook its texts, without cells and their outputs."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    return ["".join(found) for found in LINK.findall(text_of(page))]


def anchors(page: Path) -> set[str]:
    """The names that a forge gives to headings."""
    headings = re.findall(r"^#+ +(.*)", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def is_there(page: Path, link: str) -> bool:
    name, anchor = urldefrag(link)
    target = (page.parent / name).resolve() if name else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_no_link_into_the_repository_is_dead() -> None:
    found = [(page.name, link) for page in PAGES for link in links(page) if "://" not in link and not is_there(page, link)]
    assert found == []


def test_every_file_that_a_page_or_a_program_names_by_its_path_is_there() -> None:
    texts = {file: file.read_text(encoding="utf-8") for file in (*PAGES, *PROGRAMS)}
    named = {(file.name, name) for file, text in texts.items() for name in NAMED.findall(text)}
    assert len(named) > 100
    assert [each for each in sorted(named) if not any((folder / each[1]).exists() for folder in (ROOT, PACKAGE.parent))] == []


def test_links_and_anchors_are_found_and_dead_ones_told_apart() -> None:
    page = ROOT / "docs" / "reference" / "findings.md"
    assert sum(len(links(page)) for page in PAGES) > 100
    assert is_there(page, "findings.md#wrong-device")
    assert not is_there(page, "findings.md#no-such-heading")
    assert not is_there(page, "no-such-page.md")


def test_addresses_outside_have_the_form_of_one() -> None:
    found = {address for page in PAGES for address in ADDRESS.findall(text_of(page))}
    assert len(found) > 10
    assert [each for each in found if not re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(/\S*)?", each)] == []
