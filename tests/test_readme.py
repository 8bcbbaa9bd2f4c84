"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(start: str) -> str:
    """The fenced block whose text begins so."""
    found = re.search(rf"```\w*\n({re.escape(start)}.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines that the example prints when it is run as `reader.py`, and a snapshot after it."""
    folder = tmp_path_factory.mktemp("readme")
    more = "    print(devwidget.snapshot(model))\n"
    (folder / "reader.py").write_text(block("import torch\n") + more, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "reader.py"], cwd=folder, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("start", ["error[wrong-device]", "Reader"])
def test_the_example_prints_what_the_readme_shows(start: str, printed: list[str]) -> None:
    for line in filter(None, block(start).splitlines()):
        shown = line.removesuffix("...").rstrip()
        assert any(each.startswith(shown) for each in printed), line
