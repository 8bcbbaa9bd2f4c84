"""Records as data frames."""

import pytest

import devwidget.report  # noqa: F401  registers the frames
from devwidget.records.trace import Trace
from tests.views.builders import one_step, split_model


def test_a_snapshot_gives_one_row_for_each_tensor():
    frame = split_model().to_frame()
    assert list(frame.path[:2]) == ["encoder.embed.weight", "encoder.attention.weight"]
    assert list(frame[frame.role == "attribute"].device) == ["cpu"]


def test_a_snapshot_gives_modules_with_sums():
    frame = split_model().to_frame("modules").set_index("path")
    assert frame.loc["decoder", "devices"] == "cuda:0, cuda:1"
    assert frame.loc["decoder.head", "parameters"] == 513_000


@pytest.mark.parametrize(
    ("part", "rows"), [("moves", 3), ("ops", 0), ("modules", 6), ("memory", 10), ("findings", 2), ("replicas", 0)]
)
def test_a_trace_has_a_frame_for_each_part(part, rows):
    assert len(one_step().to_frame(part)) == rows


def test_moves_tell_their_line():
    move = one_step().to_frame("moves").iloc[0]
    assert (move.source, move.target, move.line, move.source_line) == ("cuda:0", "cuda:1", 40, 'x = x.to("cuda:1")')


def test_an_unknown_part_names_the_known_ones():
    with pytest.raises(ValueError, match="no table") as caught:
        Trace().to_frame("move")
    assert caught.value.what == "Trace has no table 'move'; did you mean 'moves'?"
    assert caught.value.instead == (
        "one of 'moves', 'ops', 'modules', 'lines', 'memory', 'findings', 'replicas', 'collectives', 'waits'"
    )
    with pytest.raises(ValueError, match="no table") as caught:
        split_model().to_frame("nonsense")
    assert caught.value.what == "Snapshot has no table 'nonsense'"
    assert caught.value.instead == "one of 'tensors', 'modules', 'memory'"
