"""Pages that show how to do something: their cells, files and commands print what the pages show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import devwidget
from devwidget import gpus, magics
from tests.cells import ipython
from tests.page_examples import DOCS, Notebook, does_print, examples
from tests.sampling import as_slow

LONG = ("how-to/fit-a-model.md",)
"""Pages that take more than a few seconds."""
ELSEWHERE = ("how-to/debug-ranks.md",)
"""Pages that `extras/ranks/test_page.py` runs as a job."""
FOUND = sorted(f"how-to/{path.name}" for path in (DOCS / "how-to").glob("*.md"))
PAGES = [page for page in ("getting-started.md", "zh/getting-started.md", *FOUND) if page not in (*LONG, *ELSEWHERE)]
FAILED = re.compile(r"^\w+Error: .*\Z", re.MULTILINE)
"""The last line of a cell that raised."""


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.chdir(tmp_path)
    with ipython(colors="nocolor") as shell:
        try:
            yield Notebook(shell, tmp_path)
        finally:
            magics.unload_ipython_extension(shell)
            devwidget.set_language(None)
            simulation = gpus.active()
            if simulation is not None:
                simulation.stop()


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [*PAGES, *map(as_slow, LONG)])
def test_the_examples_of_a_page_print_what_it_shows(page: str, notebook: Notebook) -> None:
    for example in examples(page):
        printed = notebook.run(example)
        assert does_print(printed, example.shown), f"{example.code}\nprints\n{printed}"
        assert "Error" in example.shown or not FAILED.search(printed), printed


@pytest.mark.parametrize(
    ("printed", "shown", "expected"),
    [
        ("a\nb\nc\n", "a\nb\n", True),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a\nb\nc\n", "a\nc\n", False),
        ("it took 12 s\n", "it took 9.5 s\n", True),
        ("one long line\n", "one ...\n", True),
    ],
)
def test_lines_are_compared_in_order_and_three_dots_leave_out(printed: str, shown: str, expected: bool) -> None:
    assert does_print(printed, shown) is expected
