"""Programs in files that fail: what `devwidget.explain` says of them, and what becomes of them after an edit."""

from __future__ import annotations

import runpy
import textwrap
import warnings
from pathlib import Path

import devwidget
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding, apply_edits

BEGINNING = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def written(text: str) -> str:
    """The text of a program, with its imports."""
    return BEGINNING + textwrap.dedent(text).lstrip("\n")


def line(text: str, part: str) -> int:
    """The first line that holds a text."""
    return next(number for number, row in enumerate(text.splitlines(), 1) if part in row)


def run_failing(folder: Path, text: str, gpus: int = 2, name: str = "program.py") -> Explanation | None:
    """What is said of the exception of a program; None if it runs to its end."""
    file = folder / name
    file.write_text(text)
    with warnings.catch_warnings(), devwidget.simulate(gpus=gpus):
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(file))
        except Exception as error:
            return devwidget.explain(error)
    return None


def edited(text: str, found: Finding, number: int = 0) -> str:
    """The program after the edits of one fix of a finding."""
    return "\n".join(apply_edits(text.splitlines(), found.fixes[number].edits)) + "\n"


def explained_and_cured(folder: Path, text: str, gpus: int = 2) -> Finding:
    """The one finding of a program's exception, whose first edit lets it run to its end."""
    explanation = run_failing(folder, text, gpus)
    assert explanation is not None
    (found,) = explanation.findings
    after = run_failing(folder, edited(text, found), gpus, "mended.py")
    assert after is None, after
    return found
