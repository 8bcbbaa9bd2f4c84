"""Schedules of pipelines are drawn as torch orders them, each action as early as what it needs is there."""

from __future__ import annotations

import contextlib
import io

import pytest
from torch.distributed.pipelining import _schedule_visualizer as visualizer

import devwidget
from devwidget.records.loading.json_io import dumps, loads


def starts_of_torch(name: str) -> list[list[int]]:
    """When torch's own visualiser begins each action."""
    with contextlib.redirect_stdout(io.StringIO()):
        spaced = visualizer.get_schedule_ops(name, 4, 8, 2, add_spacing=True)
    found = []
    for row in spaced:
        at, starts = 0, []
        for action in row:
            if action is not None:
                starts.append(at)
            at += 1 if action is None else visualizer.action_type_to_color_mapping[action.computation_type].width
        found.append(starts)
    return found


def test_actions_begin_when_torch_would_draw_them() -> None:
    name = "InterleavedZeroBubble"
    drawn = devwidget.pipeline(name, ranks=4, microbatches=8, stages_per_rank=2)
    assert [[action.start for action in actions] for actions in drawn.ranks] == starts_of_torch(name)


def test_a_schedule_prints_as_a_line_for_each_rank_and_is_read_back_and_drawn() -> None:
    small = devwidget.pipeline("1F1B", ranks=2, microbatches=2)
    assert str(small) == (
        "Schedule1F1B: 2 ranks, 2 stages, 2 microbatches; ranks wait 33 % of the time\n"
        "  rank 0  F0  F1  .   .   B0  -   .   B1  -\n"
        "  rank 1  .   F0  B0  -   F1  B1  -   .   .\n"
        "  F forward, B backward; the number is that of the microbatch"
    )
    assert loads(dumps(small)) == small
    assert small.to_html().count('title="backward') == 4


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(devwidget.DevwidgetError, match="no such schedule"):
        devwidget.pipeline("3F2B")
