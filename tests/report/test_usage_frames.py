"""Tables by module and by line: what they add up to is what the allocator said."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import devwidget
from devwidget.report.data_frames import _BYTE_COLUMNS

WIDTH, BATCH, UNIT = 64, 32, 512


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.scale = torch.ones(WIDTH, device="cuda")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.up(x))
        return x + self.down(hidden) * self.scale.to(x.device)


class OverTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block().to("cuda:0"), Block().to("cuda:1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).to("cuda:1"))


@pytest.fixture(scope="module")
def trace() -> devwidget.Trace:
    with devwidget.simulate(2, memory="1GiB"):
        model = OverTwo()
        optimizer = torch.optim.Adam(model.parameters())
        batch, beside = torch.randn(BATCH, WIDTH, device="cuda:0"), torch.ones(1000, device="cuda:1")
        with devwidget.record() as recording:
            recording.attach(model, optimizer)
            model(batch).square().mean().backward()
            optimizer.step()
        del beside
        return recording.trace


def test_both_tables_add_up_to_the_peaks_that_were_recorded(trace):
    modules, lines = trace.to_frame("modules"), trace.to_frame("lines")
    for curve in trace.memory:
        assert curve.peak.allocated == lines.peak_bytes[lines.device == str(curve.device)].sum() > 0
    assert modules.peak_bytes.sum() == sum(curve.peak.allocated for curve in trace.memory)
    for frame in (modules, lines):
        assert (frame[list(_BYTE_COLUMNS.values())].sum(axis=1) == frame.peak_bytes).all()
        for role, name in _BYTE_COLUMNS.items():
            assert frame[name].sum() == sum(getattr(curve.peak, role, 0) for curve in trace.memory), role
        kept = sum(max(point.activations for point in curve.points) for curve in trace.memory)
        assert frame.kept_bytes.sum() == kept > 0


def test_a_module_has_what_it_holds_and_what_backward_needs_of_it(trace):
    rows = trace.to_frame("modules").set_index("path")
    up = rows.loc["first.up"]
    weights = 4 * WIDTH * WIDTH * 4 + 4 * WIDTH * 4
    assert (up.parameter_bytes, up.gradient_bytes, up.optimizer_bytes) == (weights, weights, 2 * weights)
    assert (up.input_shapes, up.output_shapes) == (((BATCH, WIDTH),), ((BATCH, 4 * WIDTH),))
    assert up.calls == 1
    assert rows.loc["first"].attribute_bytes == UNIT
    assert rows.loc["first"].kept_bytes >= BATCH * 4 * WIDTH * 4  # tanh keeps its result


def test_what_was_there_before_and_is_nobodys_has_a_row_of_its_own(trace):
    outside = trace.to_frame("modules").query("path.isna()").iloc[0]
    assert outside.calls == 0
    assert outside.foreign_bytes == 4096
    assert outside.input_bytes == BATCH * WIDTH * 4


def test_a_line_has_its_bytes_operators_and_times(trace):
    lines = trace.to_frame("lines")
    line = lines[lines.source_line.str.startswith("hidden = torch.tanh", na=False)].set_index("device")
    assert line.loc["cuda:0"].kept_bytes == line.loc["cuda:1"].kept_bytes > 0
    assert line.loc["cuda:0"].gradient_bytes == 4 * WIDTH * WIDTH * 4 + 4 * WIDTH * 4
    assert 0 < line.loc["cuda:0"].backward_seconds < line.loc["cuda:0"].seconds
    assert lines.seconds.sum() <= trace.seconds
    assert lines.operators.sum() == sum(op.count for op in trace.ops)


def test_replicas_have_what_lies_on_their_device():
    with devwidget.simulate(2, memory="1GiB"):
        model = nn.DataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).cuda())
        with devwidget.record() as recording:
            model(torch.randn(BATCH, WIDTH, device="cuda")).sum().backward()
    frame = recording.trace.to_frame("modules")
    rows = frame[frame.path == "module.1"].set_index("replica")
    assert rows.kept_bytes.to_dict() == dict.fromkeys((0, 1), BATCH // 2 * WIDTH * 4)
    assert frame.peak_bytes.sum() == sum(curve.peak.allocated for curve in recording.trace.memory)
