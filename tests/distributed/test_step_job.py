"""A real step of two ranks: the collectives that are told are those that torch's own means count, byte for byte."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest

import devwidget
from devwidget.views.ranks.meetings import find_meetings
from tests.distributed.jobs import forked

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]

SHORT = {"allreduce_": "all_reduce", "_allgather_base_": "all_gather", "_reduce_scatter_base_": "reduce_scatter"}
"""Operators as CommDebugMode names them; those of functional collectives bear the name of the kind."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    found = tmp_path_factory.mktemp("steps")
    with forked(2, pathlib.Path(__file__).with_name("stepping.py"), str(found)) as job:
        assert job.process.wait() == 0
        yield found


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "tp"])
def test_the_collectives_of_a_step_are_those_that_torch_counts(folder: pathlib.Path, kind: str) -> None:
    told = json.loads((folder / "told.json").read_text())[kind]
    traced = devwidget.ranks(folder / kind).traced
    assert traced is not None
    met = find_meetings(traced)
    assert Counter(each.call.kind for each in met) == {SHORT.get(name, name): count for name, count in told["counted"].items()}
    assert [each.call.bytes for each in met] == told["given"]
    assert {tuple(part.rank for part in each.parts) for each in met} == {(0, 1)}
    assert {each.difference for each in met} == {""}


def test_each_is_told_with_the_part_of_torch_and_the_module_that_asked(folder: pathlib.Path) -> None:
    causes = {kind: [(each.by, each.module) for each in calls(folder / kind)] for kind in ("ddp", "fsdp2", "tp")}
    assert causes["ddp"] == [("DDP", None)]
    assert causes["fsdp2"] == [("FSDP", module) for module in ("0", "1", "1", "0", "1", "0")]
    assert causes["tp"] == [("DTensor", module) for module in ("0.down", "1.down", None)]


def calls(folder: pathlib.Path) -> tuple[devwidget.records.parallel.CollectiveCall, ...]:
    traced = devwidget.ranks(folder).traced
    assert traced is not None
    return traced.kinds[0].step.collectives
