"""Plain tensors and DTensors in one call, in a job of one process."""

import contextlib
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import devwidget

MIXED = "got mixed torch.Tensor and DTensor"


@pytest.fixture
def mesh(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # that torch replaces
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)

    def embed(self, x):
        return self.head(x)

    forward = embed


def sharded_layer(mesh):
    layer = nn.Linear(8, 4)
    for name, tensor in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(distribute_tensor(tensor.detach(), mesh, [Shard(0)])))
    return layer


def explained(step):
    with pytest.raises(RuntimeError, match=MIXED) as raised:
        step()
    (found,) = devwidget.explain(raised.value).findings
    return found


def test_a_plain_input_of_a_sharded_layer_is_named_with_its_line_and_converted(mesh):
    layer = sharded_layer(mesh)

    def step():
        x = torch.ones(2, 8)
        return layer(x)

    found = explained(step)
    assert found.kind == "mixed-dtensor"
    assert found.notes[0] == "torch.Tensor: `x`; DTensor: `layer.weight`, `layer.bias`"
    assert "x = torch.ones(2, 8)" in found.birth.text
    (edit,) = found.fixes[0].edits
    assert edit.text.strip() == "return layer(distribute_tensor(x, layer.weight.device_mesh))"
    assert layer(distribute_tensor(torch.ones(2, 8), layer.weight.device_mesh)).full_tensor().shape == (2, 4)


def test_a_recording_names_the_line_too(mesh):
    layer = sharded_layer(mesh)
    with contextlib.suppress(RuntimeError), devwidget.record() as recording:
        x = torch.ones(2, 8)
        layer(x)
    (found,) = recording.trace.findings
    assert found.kind == "mixed-dtensor"
    assert found.birth.text.strip() == "x = torch.ones(2, 8)"


def test_one_dtensor_among_plain_tensors_may_be_gathered(mesh):
    total = distribute_tensor(torch.ones(4), mesh, [Replicate()])

    def step():
        mask = torch.ones(4)
        return mask * total

    assert explained(step).fixes[1].edits[0].text.strip() == "return mask * total.full_tensor()"


def test_a_tensor_with_a_gradient_is_converted_differentiably(mesh):
    layer, plain = sharded_layer(mesh), nn.Linear(8, 8)
    fixes = explained(lambda: layer(plain(torch.ones(2, 8)))).fixes
    assert fixes[0].code.startswith("DTensor.from_local(")


def test_a_method_that_runs_without_the_hooks_of_fully_shard_is_named(mesh):
    model = fully_shard(Tower(), mesh=mesh)
    found = explained(lambda: model.embed(torch.ones(2, 8)))
    assert found.notes[1] == "`fully_shard` gathers parameters when you call `Tower`; `embed` ran without its hooks"
    assert "register_fsdp_forward_method" in found.fixes[0].code
    model(torch.ones(2, 8))


def test_a_number_among_dtensors_stays_silent(mesh):
    with devwidget.record() as recording:
        distribute_tensor(torch.ones(4), mesh, [Shard(0)]) * torch.tensor(2.0)
    assert not recording.trace.findings
