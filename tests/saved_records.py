"""Real records of several models, as their files hold them."""

from __future__ import annotations

import functools
import json
from typing import Any

import torch
from torch import nn

import devwidget
from devwidget.extras import extras
from devwidget.records.loading.json_io import dumps


class Stray(nn.Module):
    """A convolution, a tied head, a mask that `.to` does not reach, and a wait."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        self.mask = torch.ones(8)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embed(index)) * self.mask
        back = hidden.cpu().to(index.device)
        return self.head(back) * (1 if hidden.sum().item() else 2)


def _explanation() -> Any:
    try:
        Stray().cuda()(torch.arange(4).cuda())
    except RuntimeError as error:
        return devwidget.explain(error)
    raise AssertionError("devices mixed")


@functools.cache
def real_records() -> tuple[Any, ...]:
    """Snapshots, traces, a finding, a plan and explanations."""
    records: list[Any] = [
        devwidget.snapshot(nn.Transformer(8, 2, 1, 1, 16, batch_first=True)),
        devwidget.trace(Stray(), torch.arange(4)),
    ]
    with devwidget.simulate(2):
        model, index = Stray().cuda(), torch.arange(4).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        traced = devwidget.trace(model, index, loss_fn=torch.sum, optimizer=optimizer)
        parallel = devwidget.trace(nn.DataParallel(nn.Linear(4, 4).cuda()), torch.randn(6, 4), loss_fn=torch.sum)
        wrapped = devwidget.snapshot(nn.DataParallel(model), optimizer=optimizer)
        records += [traced, parallel, wrapped, _explanation(), traced.findings[0]]
    if "plan" in extras():
        records += _plans()
    return tuple(records)


def _plans() -> list[Any]:
    step: dict[str, Any] = {"loss_fn": torch.sum, "optimizer": torch.optim.Adam}
    batch = torch.randn(8, 64)
    return [
        devwidget.plan(nn.Linear(64, 64), batch, gpus=2, memory="10KiB", placement="data parallel", **step),
        devwidget.plan(nn.Sequential(nn.Linear(64, 64)), batch, gpus=2, memory="1MiB", placement={"0": "cuda:1"}),
    ]


@functools.cache
def real_files() -> tuple[str, ...]:
    """The same as JSON text."""
    return tuple(map(dumps, real_records()))


def real_objects() -> list[Any]:
    """The same as JSON objects, fresh ones at each call."""
    return [json.loads(text) for text in real_files()]
