"""More edits, written before the judge saw any of them: right ones pass, and those that look right do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import devwidget
from tests.extras.agents import more_programs

pytestmark = pytest.mark.slow

EDITS = (Path(__file__).parent / "more_edits.txt").read_text(encoding="utf-8").split("\n\n")
"""A line with the verdict, the function that builds the step, and whether that is passed; then the diff."""


@pytest.mark.parametrize("edit", [pytest.param(each, id=f"{at}-{each.partition(chr(10))[0]}") for at, each in enumerate(EDITS)])
def test_right_edits_pass_and_others_do_not(edit: str) -> None:
    head, _, diff = edit.partition("\n")
    verdict, name, *built = head.split()
    make = getattr(more_programs, name)
    with devwidget.simulate(gpus=2):
        torch.manual_seed(1)
        if built:
            evidence = devwidget.try_edit(diff, make)
        else:
            evidence = devwidget.try_edit(diff, **make())
    assert (evidence.verdict == "works") == (verdict == "right"), str(evidence)
