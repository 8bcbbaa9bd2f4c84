"""Training loops, healthy and not, on one virtual GPU: each has the fault that its name says from some step on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import devwidget

Watcher = Callable[..., contextlib.AbstractContextManager[Any]]
DEVICE = "cuda"
MILLISECOND = 1_000_000


class Clock:
    """Stands still but where the program lets time pass."""

    def __init__(self) -> None:
        self.now = 0

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND


@contextlib.contextmanager
def unwatched(*_: Any, **__: Any) -> Iterator[None]:
    yield None


class Loop:
    """A small model with its optimizer, and what a step of it gives."""

    def __init__(self, watcher: Watcher = devwidget.watch, steps: int = 180, width: int = 32, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 4)).to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.steps, self.losses, self.watching = steps, list[torch.Tensor](), watcher(self.model, self.optimizer, **options)
        self.kept: list[torch.Tensor] = []

    def draw_batch(self, size: int = 8, device: str = DEVICE) -> torch.Tensor:
        return torch.randn(size, 16, device=device)

    def go_back(self, out: torch.Tensor) -> torch.Tensor:
        loss = out.square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach().cpu() if len(self.losses) % 40 == 0 else torch.zeros(()))
        return loss

    def run(self, turn: Callable[[int], object]) -> Any:
        """The run after so many turns."""
        with self.watching as run:
            for step in range(self.steps):
                turn(step)
        return run


def told(run: Any, kind: str) -> devwidget.Finding:
    """The one finding of a kind."""
    (found,) = [each for each in run.findings if each.kind == kind]
    return found


def line_of(finding: devwidget.Finding) -> str:
    """The source of the line that it names."""
    return finding.fault.text if finding.fault is not None else ""
