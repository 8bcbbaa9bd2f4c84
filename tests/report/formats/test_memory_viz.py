"""Memory as a snapshot of torch, which our reader opens again."""

from __future__ import annotations

import pathlib

import torch
from torch import nn

import devwidget
from devwidget.report.formats.memory_viz import memory_viz


def test_it_opens_again_with_the_same_levels(tmp_path: pathlib.Path) -> None:
    with devwidget.simulate(gpus=2):
        step = devwidget.trace(nn.Linear(64, 8).to("cuda:1"), torch.ones(4, 64, device="cuda:1"), loss_fn=torch.sum)
    (tmp_path / "memory.pickle").write_bytes(memory_viz(step))
    curves = {curve.device: curve for curve in devwidget.open(tmp_path / "memory.pickle").memory}
    for curve in (curve for curve in step.memory if curve.points):
        again = curves[curve.device]
        assert again.peak.allocated == curve.peak.allocated
        assert again.points[-1].allocated == curve.points[-1].allocated
