"""Memory as a snapshot of torch: torch's own reader takes it, and so does ours, with the same levels."""

from __future__ import annotations

import pathlib
import pickle

import pytest
import torch
from torch import nn
from torch.cuda import _memory_viz

import devwidget
from devwidget.records.trace import Trace
from devwidget.report.formats.memory_viz import memory_viz


@pytest.fixture(scope="module")
def step() -> Trace:
    """A step of training on two virtual GPUs."""
    with devwidget.simulate(gpus=2):
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to("cuda:1")
        optimizer = torch.optim.Adam(model.parameters())
        batch = torch.ones(4, 64, device="cuda:1")
        return devwidget.trace(model, batch, loss_fn=lambda out: out.sum(), optimizer=optimizer)


def test_torch_reads_it(step: Trace) -> None:
    content = pickle.loads(memory_viz(step))
    curve = next(curve for curve in step.memory if curve.device.index == 1)
    told = _memory_viz.trace(content)
    assert "Device 1" in told
    assert "del " in told
    assert "test_memory_viz.py" in _memory_viz.memory(content, format_flamegraph=lambda lines: lines)
    assert _memory_viz.trace_plot(content).startswith("\n<!DOCTYPE html>")
    (segment,) = [each for each in content["segments"] if each["device"] == 1]
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert segment["allocated_size"] == curve.points[-1].allocated


def test_it_opens_again_with_the_same_levels(step: Trace, tmp_path: pathlib.Path) -> None:
    (tmp_path / "memory.pickle").write_bytes(memory_viz(step))
    curves = {curve.device: curve for curve in devwidget.open(tmp_path / "memory.pickle").memory}
    for curve in (curve for curve in step.memory if curve.points):
        again = curves[curve.device]
        assert again.peak.allocated == curve.peak.allocated
        assert again.points[-1].allocated == curve.points[-1].allocated


def test_a_trace_without_gpus_is_an_empty_snapshot(tmp_path: pathlib.Path) -> None:
    content = pickle.loads(memory_viz(Trace()))
    assert content["device_traces"] == []
    (tmp_path / "memory.pickle").write_bytes(memory_viz(Trace()))
    assert devwidget.open(tmp_path / "memory.pickle").memory == ()
