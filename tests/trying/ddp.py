"""What each of two ranks runs: DDP on a virtual GPU, with a fault on rank 0 alone; prints the weights that it ends with."""

from __future__ import annotations

import json
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn

import devwidget


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 0:
            shift = torch.zeros(4)
            return self.layer(x) + shift
        return self.layer(x)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    with devwidget.record(heal=True):  # the fault is healed as it is in the trace
        model(batch).square().mean().backward()
    optimizer.step()


def main(folder: pathlib.Path, *, is_traced: bool) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    told = []
    with devwidget.simulate(gpus=1):
        model = nn.parallel.DistributedDataParallel(Model().to("cuda:0"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(3):
            batch = torch.full((2, 4), float(number + dist.get_rank()), device="cuda:0")
            if is_traced:
                trace = devwidget.trace(model, batch, loss_fn=lambda out: out.square().mean())
                told += [[fix.not_tried, trace.step_runs] for each in trace.findings for fix in each.fixes if fix.edits]
            step(model, optimizer, batch)
        weights = [weight.detach().cpu().tolist() for weight in model.parameters()]
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps([weights, told]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), is_traced=sys.argv[2] == "traced")
