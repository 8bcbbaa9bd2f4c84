"""Programs in which data moves between devices and the host waits for values, which models and whole programs do seldom."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy
import torch
from torch import nn

from tests.profiler_engine.agreement import Prepared

Step = Callable[[nn.Module, torch.Tensor], object]


class Net(nn.Module):
    """Two layers, between which something may be asked of the host."""

    def __init__(self, asks: Callable[[torch.Tensor], object] = lambda hidden: None) -> None:
        super().__init__()
        self.first, self.second, self._asks = nn.Linear(4, 8), nn.Linear(8, 2), asks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        self._asks(hidden)
        return self.second(hidden)


def cast_and_back(model: nn.Module, x: torch.Tensor) -> None:
    for _ in range(3):
        x = model(x.to(torch.float64).float()).to(torch.bfloat16).to(torch.float32).repeat(1, 2)


def send_without_waiting(model: nn.Module, x: torch.Tensor) -> None:
    there = torch.ones(3, 4).to(x.device, non_blocking=True)
    torch.zeros(3, 2).copy_(model(there).detach(), non_blocking=True)


def read_losses(model: nn.Module, x: torch.Tensor) -> float:
    optimizer, total = torch.optim.SGD(model.parameters(), lr=0.1), 0.0
    for _ in range(3):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return total


def read_lists(model: nn.Module, x: torch.Tensor) -> object:
    out = model(x).detach()
    return out.tolist(), out.cpu().numpy(), numpy.asarray(out.cpu()), float(out.sum()), int(out.argmax())


def choose_by_mask(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x).detach()
    torch.masked_select(out, out.gt(0))
    out[out.gt(0)].sum()
    out[out.gt(-100)] = torch.ones(6, device=x.device)
    torch.nonzero(out)
    out.argmax(dim=1).unique()


def start_on_meta(model: nn.Module, x: torch.Tensor) -> None:
    with torch.device("meta"):
        late = Net()
    late = late.to_empty(device=x.device)
    late.load_state_dict(model.state_dict())
    late(x)
    x.to("meta").to(torch.float16)


STEPS: tuple[Step, ...] = (*(cast_and_back, send_without_waiting, read_losses, read_lists, choose_by_mask, start_on_meta),)


def iterate_moving(device: str) -> Iterator[tuple[str, Callable[[], Prepared]]]:
    """The programs on a device."""
    for step in STEPS:
        yield step.__name__, functools.partial(_prepare, step, Net, device)
    yield "in a layer", functools.partial(_prepare, read_losses, lambda: Net(lambda hidden: hidden.sum().item()), device)


def _prepare(step: Step, build: Callable[[], nn.Module], device: str) -> Prepared:
    torch.manual_seed(0)
    model, x = build().to(device), torch.rand(3, 4).to(device)
    return lambda: step(model, x), model
