"""What each rank of a job with one fault runs: `faulty.py FAULT GUILTY EVERY`; all train copies of one model, a batch each."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

import devwidget

FAULTS = (
    *("loader", "collective", "skipped", "killed", "raised", "stopped", "checkpoint", "lr", "eval"),
    "straggler",
)
"""Ten; "none" for a job without a fault, which ends after some steps."""
BEGINS = 12
"""The step in which most of them begin."""
WELL = 40


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of numbers; those of one rank may come late, or not at all."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> torch.Tensor:
        if self.fault == "loader" and at >= 4 * BEGINS:
            _say_struck()
            time.sleep(600)
        return torch.full((8,), float(at % 7))


def main(fault: str, guilty: int, every: float) -> None:
    """Train until somebody ends it; nobody is guilty of "none"."""
    dist.init_process_group("gloo")
    own = fault if dist.get_rank() == guilty else ""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
    model = nn.parallel.DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    devwidget.serve(model, every=every, checksums=True)
    _change_model(own, inner, optimizer)
    batches = iter(torch.utils.data.DataLoader(Rows(own), batch_size=4))
    for step in _count_steps(fault):
        batch = next(batches)
        _strike(own, step)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if own != "skipped" or step != BEGINS:
            _gather_losses(loss.detach())
        # More ranks than processors take turns, and are slower all.
        time.sleep(0.025 * dist.get_world_size() if own == "straggler" else 0.002)
    dist.destroy_process_group()


def _gather_losses(loss: torch.Tensor) -> None:
    """Gather the losses of all ranks, as a log does.

    Gloo keeps messages of two kinds of collectives apart, so a rank that leaves this one out hangs. Two collectives of
    one kind would meet, and gloo aborts whichever rank receives more bytes than it waits for.
    """
    losses = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss)


def _count_steps(fault: str) -> Iterator[int]:
    yield from range(WELL if fault == "none" else 1_000_000)


def _change_model(own: str, inner: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Faults that are there from the beginning."""
    if own == "checkpoint":
        inner.load_state_dict({name: torch.full_like(value, 0.01) for name, value in inner.state_dict().items()})
    elif own == "lr":
        optimizer.param_groups[0]["lr"] = 0.02
    elif own == "eval":
        inner.eval()


def _strike(own: str, step: int) -> None:
    """Faults that strike in one step."""
    if step != BEGINS:
        return
    if own:
        _say_struck()
    if own == "collective":
        parts = [torch.zeros(3) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, torch.ones(3))
    elif own == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif own == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif own == "raised":
        raise ValueError("the labels of this batch are wrong")


def _say_struck() -> None:
    pathlib.Path(os.environ["DEVWIDGET_RANKS"], "struck").touch()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
