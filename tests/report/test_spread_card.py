"""What the tab Devices says of real wrappers, sharded and offloaded models, in one process of a fake group."""

import sys

import pytest
import torch
from torch import nn

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.report.page.parallel_cards import spread_cards


@pytest.fixture
def _four_ranks(monkeypatch):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one of its own there and leaves it
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    torch.distributed.destroy_process_group()


def card_of(model):
    (card,) = spread_cards(take_snapshot(model))
    return card


@pytest.mark.usefixtures("_four_ranks")
def test_distributed_data_parallel_holds_a_whole_copy_and_does_not_see_the_others():
    card = card_of(nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))))
    assert card["words"][:2] == ["rank 0 of 4", "In this process: cpu 392 B of 392 B."]
    assert "are not shown" in card["words"][2]
    assert "The names of its parameters and buffers (6) begin with `module.`" in card["words"][3]
    assert card["code"] == "torch.save(model.module.state_dict(), path)"


@pytest.mark.usefixtures("_four_ranks")
def test_fsdp2_tells_what_this_process_holds_of_each_unit():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (4,))
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16, affine=False))
    for part in (model[0], model):
        fully_shard(part, mesh=mesh)
    card = card_of(model)
    assert card["kind"] == "FSDP2"
    assert card["rows"] == [
        ["the model itself", "3", "cpu 264 B", "648 B", "shard 0 of 4 along dim 0"],
        ["0", "1", "cpu 64 B", "256 B", "shard 0 of 4 along dim 0"],
    ]
    assert card["words"][0] == "In this process: cpu 328 B of 904 B."


@pytest.mark.usefixtures("_four_ranks")
def test_tensor_parallel_modules_are_listed_with_their_cut():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False), nn.LayerNorm(8))
    parallelize_module(model, init_device_mesh("cpu", (4,)), {"0": ColwiseParallel(), "1": RowwiseParallel()})
    card = card_of(model)
    assert card["kind"] == "tensor parallel"
    assert [(row[0], row[-1][-5:]) for row in card["rows"]] == [("0", "dim 0"), ("1", "dim 1")]


def test_a_device_map_of_hugging_face_is_told_with_its_hooks(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False))
    places = {"0": "cpu", "1": "disk"}
    model = accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
    hooks, mapped = spread_cards(take_snapshot(model))
    assert mapped["words"] == ["cpu x1, disk x1", "In this process: cpu 64 B of 96 B."]
    assert [row[0] for row in hooks["rows"]] == ["runs on cpu", "runs on cpu, offloaded to disk"]


def test_data_parallel_on_a_machine_without_a_gpu_says_that_nothing_is_cut():
    card = card_of(nn.DataParallel(nn.Linear(4, 4)))
    assert card["words"][0].endswith("it calls the module directly")
