"""slow-loader: a loop that waits for its batches for most of each step."""

import dataclasses

import pytest

from devwidget.records.trace import LoaderTime, Trace
from devwidget.rules.registry import judge
from tests.rules.builders import findings, is_silent, site

KIND = "slow-loader"
LOOP, LOADER = site("for x in loader:", 20, "train"), site("loader = DataLoader(Images(), 8)", 7, "<module>")
SLOW = LoaderTime(LOOP, LOADER, 0, 10, 0.21, 0.24, 0.03)


def test_a_slow_loader_is_named_with_the_share_and_an_edit_of_the_loader(golden):
    (found,) = findings(loaders=(SLOW,), virtual_gpus=1)
    golden(f"{KIND}.txt", found)
    assert [edit.text for edit in found.fixes[0].edits] == ["loader = DataLoader(Images(), 8, num_workers=4)"]


def test_workers_that_are_too_slow_are_counted(golden):
    (found,) = findings(loaders=(dataclasses.replace(SLOW, workers=2),), virtual_gpus=1)
    golden(f"{KIND}-workers.txt", found)


def test_batches_on_the_gpu_are_not_for_workers():
    loaders = (dataclasses.replace(SLOW, uses_gpu=True),)
    assert is_silent(KIND, loaders=loaders, virtual_gpus=1)
    (found,) = findings(loaders=loaders)
    assert [fix.summary.split(",")[0] for fix in found.fixes] == ["compute once"]


def test_the_only_batch_of_a_step_is_told_as_such():
    (found,) = findings(loaders=(LoaderTime(None, None, 0, 1, 0.21, 0.24),), virtual_gpus=1)
    assert found.headline == "88% of the time of each step was spent in next(loader): 210 of 240 ms"


@pytest.mark.parametrize(
    "more",
    [{"loop_seconds": 0.5}, {"seconds": 0.02, "loop_seconds": 0.03}, {"batches": 2}, {"longest": 0.19}],
    ids=["less than half", "a moment", "two batches", "one long batch"],
)
def test_a_loader_that_takes_little_or_once_is_silent(more):
    assert is_silent(KIND, loaders=(dataclasses.replace(SLOW, **more),), virtual_gpus=1)


def test_a_trace_without_a_loader_does_not_mention_it():
    judged = judge(Trace())
    assert not any(KIND in each for each in (*judged.checked, *judged.not_checked))
