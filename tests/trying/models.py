"""A model with a fault that an edit mends, and something else that its forward does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.finding import Fix
from devwidget.records.trace import Trace
from devwidget.rules.edits import candidates


class Faulty(nn.Module):
    """Calls what it is given once for each run of the step."""

    def __init__(self, act: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(4, 4), act

    def forward(self, x):
        self.act()
        shift = torch.zeros(4)
        return self.layer(x) + shift


def traced(model: nn.Module, **options: Any) -> Trace:
    return devwidget.trace(model.to("cuda:0"), torch.ones(2, 4, device="cuda:0"), **options)


def first_fix(trace: Trace) -> Fix:
    (found,) = trace.findings
    return found.fixes[0]


def offer_instead(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Let the first edit that moves a tensor have another text."""
    real = candidates.create_there

    def changed(case: Any) -> Fix:
        fix = real(case)
        return dataclasses.replace(fix, edits=tuple(dataclasses.replace(e, text=change(e.text)) for e in fix.edits))

    monkeypatch.setattr(candidates, "create_there", changed)
