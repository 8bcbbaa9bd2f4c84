"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")


def block(start: str, page: str = README) -> str:
    """The fenced block whose text begins so."""
    found = re.search(rf"```\w*\n({re.escape(start)}.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory, virtual_gpus: None) -> list[str]:
    """Lines that the example prints when it is run as `reader.py`, and a snapshot after it; then both in Chinese."""
    folder = tmp_path_factory.mktemp("readme")
    *program, traced = block("import torch\n").splitlines(keepends=True)
    again = [traced, "    print(devwidget.snapshot(model))\n"]
    lines = [*program, *again, '    devwidget.set_language("zh")\n', *again]
    (folder / "reader.py").write_text("".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "reader.py"], cwd=folder, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return done.stdout.splitlines()


@pytest.mark.process
@pytest.mark.parametrize(
    ("start", "page"),
    [("error[wrong-device]", README), ("错误[wrong-device]", CHINESE), ("Reader", README), ("Reader", CHINESE)],
    ids=["report", "report in chinese", "snapshot", "snapshot in chinese"],
)
def test_the_example_prints_what_the_readme_shows(start: str, page: str, printed: list[str]) -> None:
    for line in filter(None, block(start, page).splitlines()):
        shown = line.removesuffix("...").rstrip()
        assert any(each.startswith(shown) for each in printed), line


def test_both_readmes_show_the_same_program_and_name_the_same_calls() -> None:
    def calls(page: str) -> list[list[str]]:
        return [re.findall("`(.*?)`", line.split("|")[2]) for line in page.splitlines() if line.startswith("| ")]

    assert block("import torch\n", CHINESE) == block("import torch\n")
    assert calls(CHINESE) == calls(README)
