"""Schedules of pipelines are drawn as torch orders them, each action as early as what it needs is there."""

from __future__ import annotations

import contextlib
import io
import itertools

import pytest
from torch.distributed.pipelining import _schedule_visualizer as visualizer
from torch.distributed.pipelining.schedules import ScheduleGPipe

import devwidget
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.ranks.parallel_plan import Pipeline

ONE_STAGE = ("1F1B", "GPipe")


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


@pytest.mark.parametrize("name", ["Interleaved1F1B", "InterleavedZeroBubble", "DualPipeV"])
def test_actions_begin_when_torch_would_draw_them(name: str) -> None:
    drawn = devwidget.pipeline(name, ranks=4, microbatches=8, stages_per_rank=2)
    assert [[action.start for action in actions] for actions in drawn.ranks] == starts_of_torch(name)


@pytest.mark.parametrize("name", ONE_STAGE)
def test_the_bubble_is_what_the_papers_say(name: str) -> None:
    drawn = devwidget.pipeline(name, ranks=4, microbatches=8)
    assert drawn.idle == pytest.approx(3 / 11)
    assert (drawn.stages, drawn.microbatches, drawn.width) == (4, 8, 33)


@pytest.mark.parametrize("name", ["1F1B", "GPipe", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"])
def test_no_rank_does_two_things_at_once_and_no_stage_runs_before_what_it_needs(name: str) -> None:
    drawn = devwidget.pipeline(name)
    ends = {}
    for actions in drawn.ranks:
        assert all(one.start + one.width <= next_.start for one, next_ in itertools.pairwise(actions))
        ends.update({(each.stage, each.microbatch): each.start + 1 for each in actions if each.kind == "forward"})
    forwards = [each for actions in drawn.ranks for each in actions if each.kind == "forward" and each.stage]
    assert all(ends.get((each.stage - 1, each.microbatch), 0) <= each.start for each in forwards)


@pytest.mark.parametrize("name", ["1F1B", "ZBVZeroBubble"])
def test_every_microbatch_goes_once_through_every_stage(name: str) -> None:
    drawn = devwidget.pipeline(name)
    seen = [(each.stage, each.microbatch) for actions in drawn.ranks for each in actions if each.kind == "forward"]
    assert sorted(seen) == [(stage, batch) for stage in range(drawn.stages) for batch in range(8)]


def test_an_object_of_torch_knows_its_own_sizes() -> None:
    stage = visualizer.mock.create_autospec(visualizer.PipelineStage, instance=True)
    stage.group_rank, stage.group_size, stage.num_stages, stage.submod = 0, 2, 2, None
    drawn = devwidget.pipeline(ScheduleGPipe(stage, 3))
    assert (drawn.schedule, len(drawn.ranks), drawn.microbatches) == ("ScheduleGPipe", 2, 3)
    assert drawn == devwidget.pipeline(ScheduleGPipe, ranks=2, microbatches=3)


@pytest.mark.parametrize("schedule", ["3F2B", 7, int])
def test_what_is_no_schedule_is_refused(schedule: object) -> None:
    with pytest.raises(devwidget.DevwidgetError, match="no such schedule"):
        devwidget.pipeline(schedule)


def test_sizes_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(devwidget.DevwidgetError, match="no such schedule"):
        devwidget.pipeline("Interleaved1F1B", ranks=4, microbatches=8, stages_per_rank=1)


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    devwidget.pipeline("1F1B")
    assert capsys.readouterr() == ("", "")


def small() -> Pipeline:
    return devwidget.pipeline("1F1B", ranks=2, microbatches=2)


def test_it_prints_as_a_line_for_each_rank() -> None:
    assert str(small()) == (
        "Schedule1F1B: 2 ranks, 2 stages, 2 microbatches; ranks wait 33 % of the time\n"
        "  rank 0  F0  F1  .   .   B0  -   .   B1  -\n"
        "  rank 1  .   F0  B0  -   F1  B1  -   .   .\n"
        "  F forward, B backward; the number is that of the microbatch"
    )


def test_it_is_read_back_and_drawn_in_cells_as_wide_as_their_time() -> None:
    assert loads(dumps(small())) == small()
    page = small().to_html()
    assert page.count('class="backward"') == page.count('title="backward') == 4
    assert 'title="backward of microbatch 1 in stage 0"' in page
    assert "<script" not in page
