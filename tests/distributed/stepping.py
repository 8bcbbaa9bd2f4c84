"""What each rank of a job runs: a step of DDP, FSDP2 and tensor parallel layers, recorded, and counted by torch itself."""

from __future__ import annotations

import json
import pathlib
import pickle
import sys
import warnings
from collections import Counter
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import devwidget
from devwidget.capture import torch_internals


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


def ddp() -> nn.Module:
    return nn.parallel.DistributedDataParallel(nn.Sequential(Block(), Block()))


def fsdp2() -> nn.Module:
    model = nn.Sequential(Block(), Block())
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def tp() -> nn.Module:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = nn.Sequential(Block(), Block())
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def counted(step: Callable[[], None]) -> dict[str, int]:
    """How many collectives of each operator torch's own mode counts."""
    with CommDebugMode() as mode:
        step()
    return {str(name).rpartition(".")[2]: count for name, count in mode.get_comm_counts().items()}


def given(step: Callable[[], None]) -> list[int]:
    """Bytes of the float32 inputs of each collective, as the flight recorder notes them."""
    before = {entry["record_id"] for entry in entries()}
    step()
    new = [entry for entry in entries() if entry["record_id"] not in before]
    return [sum(4 * torch.Size(shape).numel() for shape in entry["input_sizes"]) for entry in new]


def entries() -> list[dict[str, object]]:
    return pickle.loads(torch_internals.collective_entries(True, False)).get("entries", [])


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo")
    warnings.simplefilter("ignore")
    told = {}
    for make in (ddp, fsdp2, tp):
        model, batch = make(), torch.randn(8, 16)

        def step(model: nn.Module = model, batch: torch.Tensor = batch) -> None:
            model(batch).square().mean().backward()

        step()
        step()
        told[make.__name__] = {"counted": counted(step), "given": given(step)}
        with devwidget.record(path=folder / make.__name__) as recording:
            recording.attach(model)
            step()
        told[make.__name__]["operators"] = Counter(op.name for op in recording.trace.ops if "c10d" in op.name)
    if dist.get_rank() == 0:
        (folder / "told.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
