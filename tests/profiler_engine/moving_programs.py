"""Programs in which data moves between devices and the host waits for values, which models and whole programs do seldom."""

from __future__ import annotations

import contextlib
import functools
import io
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


def fetch_each_batch(model: nn.Module, x: torch.Tensor) -> None:
    for batch in torch.ones(6, 4).split(2):
        model(batch.to(x.device)).sum().backward()


def send_without_waiting(model: nn.Module, x: torch.Tensor) -> None:
    there = torch.ones(3, 4).to(x.device, non_blocking=True)
    torch.zeros(3, 2).copy_(model(there).detach(), non_blocking=True)


def write_over(model: nn.Module, x: torch.Tensor) -> None:
    kept = torch.zeros(3, 2)
    for _ in range(2):
        kept.copy_(model(x).detach())
    x.copy_(torch.ones(3, 4))
    x.copy_(torch.ones(3, 4), non_blocking=True)
    x.copy_(torch.zeros(4, device=x.device))


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


def ask_for_truth(model: nn.Module, x: torch.Tensor) -> None:
    if bool(model(x).isfinite().all()) and (x > 0).any() and torch.equal(x, x):
        model(x)


def choose_by_mask(model: nn.Module, x: torch.Tensor) -> None:
    out = model(x).detach()
    torch.masked_select(out, out.gt(0))
    out[out.gt(0)].sum()
    out[out.gt(-100)] = torch.ones(6, device=x.device)
    torch.nonzero(out)
    out.argmax(dim=1).unique()


def choose_by_number(model: nn.Module, x: torch.Tensor) -> None:
    places = torch.arange(2, device=x.device)
    chosen = x[places]
    x[places] = chosen
    model(x[: int(places.max()) + 1])
    x.repeat_interleave(places.new_ones(3), dim=0)
    x.repeat_interleave(2, dim=0)


def print_values(model: nn.Module, x: torch.Tensor) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        print(model(x).detach())
        print(f"{x.sum().item():.3f}")


def build_there(model: nn.Module, x: torch.Tensor) -> None:
    scale = torch.tensor([1.0, 2.0]).to(x.device)
    weights = torch.from_numpy(numpy.ones((3, 2), dtype=numpy.float32)).to(x.device)
    torch.mul(model(x), scale).mul(weights).sum().backward()


def start_on_meta(model: nn.Module, x: torch.Tensor) -> None:
    with torch.device("meta"):
        late = Net()
    late = late.to_empty(device=x.device)
    late.load_state_dict(model.state_dict())
    late(x)
    x.to("meta").to(torch.float16)


def list_values(model: nn.Module, x: torch.Tensor) -> None:
    sums = model(x).detach().sum(1)
    torch.tensor([sums[0], sums[1]], device=x.device)
    torch.as_tensor([sums[0], 1.0])
    torch.tensor([1.0, 2.0], device=x.device)


def save_and_load(model: nn.Module, x: torch.Tensor) -> None:
    kept = {name: value.cpu() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    model(x)


ASKS: dict[str, Callable[[torch.Tensor], object]] = {
    "in a layer, item": lambda hidden: hidden.sum().item(),
    "in a layer, to the host": lambda hidden: hidden.detach().cpu(),
    "in a layer, nonzero": lambda hidden: hidden.nonzero(),
    "in a layer, cast": lambda hidden: hidden.to(torch.float64),
}
STEPS: tuple[Step, ...] = (
    *(cast_and_back, fetch_each_batch, send_without_waiting, write_over, read_losses, read_lists, ask_for_truth),
    *(choose_by_mask, choose_by_number, print_values, build_there, start_on_meta, list_values, save_and_load),
)


def iterate_moving(device: str) -> Iterator[tuple[str, Callable[[], Prepared]]]:
    """The programs on a device."""
    for step in STEPS:
        yield step.__name__, functools.partial(_prepare, step, Net, device)
    for name, asks in ASKS.items():
        yield name, functools.partial(_prepare, read_losses, functools.partial(Net, asks), device)


def _prepare(step: Step, build: Callable[[], nn.Module], device: str) -> Prepared:
    torch.manual_seed(0)
    model, x = build().to(device), torch.rand(3, 4).to(device)
    return lambda: step(model, x), model
