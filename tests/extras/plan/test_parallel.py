"""Plans for the ranks of a mesh: each holds its part, each form has its plan, and nothing of the user's changes."""

import json
import math
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import devwidget
from devwidget.extras.plan.parallel.mesh import Mesh
from devwidget.extras.plan.parallel.pipeline import list_stage_phases
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io
from tests.sampling import sample

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each rank runs in a forked process"),
    pytest.mark.usefixtures("copies_run_backward"),
]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.down(torch.relu(self.up(x))))


def chain(blocks=4, width=64):
    return nn.Sequential(*(Block(width) for _ in range(blocks)), nn.Linear(width, 3))


def squares(out, target):
    return (out - target).square().sum()


def planned(model, mesh, **more):
    step = {"loss_fn": squares, "target": torch.zeros(8, 3), "optimizer": torch.optim.AdamW, "memory": "1GiB", **more}
    return devwidget.plan(model, torch.randn(8, 64), parallel=mesh, **step)


def test_the_parts_of_a_rank_add_up_to_its_peak():
    for rank in planned(chain(), {"dp": 2}).ranks:
        parts = rank.parameters + rank.gathered + rank.buckets + rank.gradients + rank.optimizer + rank.activations
        assert rank.peak == parts
        assert rank.peak == max(each.bytes for each in rank.phases)


def tensor_parallel(model, mesh):
    for block in model[:-1]:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])


def test_of_256_ranks_one_of_each_kind_runs_and_empty_shards_are_told():
    plan = planned(chain(2), {"dp": 32, "tp": 8}, parallelize=tensor_parallel)
    runs = [run for rank in plan.ranks for run in rank.ranks]
    assert sorted(number for first, last in runs for number in range(first, last + 1)) == list(range(256))
    assert 1 < len(plan.ranks) < 6
    empty = [rank for rank in plan.ranks if rank.without]
    assert all(first >= 8 * 3 for rank in empty for first, _ in rank.ranks)  # the head has three rows, for three of `dp`
    assert "hold no part of" in str(plan)


def test_a_rank_holds_a_part_of_what_one_gpu_would():
    model = chain()
    whole = sum(each.numel() for each in model.parameters()) * 4
    one, four = planned(model, {"dp": 1}), planned(model, {"dp": 4})
    assert one.ranks[0].parameters == pytest.approx(whole, rel=0.05)
    assert four.ranks[0].parameters == pytest.approx(whole / 4, rel=0.1)
    assert four.ranks[0].optimizer == pytest.approx(2 * whole / 4, rel=0.15)


def test_stages_of_a_pipeline_hold_their_own_blocks_and_more_microbatches_in_flight_at_its_beginning():
    model = nn.Sequential(*(Block(64) for _ in range(4)))
    plan = planned(model, {"pp": 2}, microbatches=4, target=torch.zeros(8, 64), optimizer=torch.optim.SGD)
    first, last = sorted(plan.ranks, key=lambda rank: rank.ranks)
    half = sum(each.numel() for each in model.parameters()) * 2
    assert first.parameters == pytest.approx(half, rel=0.05)
    assert last.parameters == pytest.approx(half, rel=0.05)
    assert first.peak > last.peak


def test_the_order_of_a_stage_is_that_of_torchs_own_schedule():
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    for stage, actions in enumerate(visualizer.get_schedule_ops("1F1B", 4, 8)):
        kinds = [each.computation_type.name for each in actions if each is not None and each.microbatch_index is not None]
        assert [f"{'FULL_' * (what == 'backward')}{what.upper()}" for what in list_stage_phases(stage, 4, 8)] == kinds


def test_nothing_of_the_users_has_changed():
    model = chain()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batch, seed = torch.randn(8, 64), torch.get_rng_state()
    devwidget.plan(model, batch, parallel={"dp": 2}, loss_fn=torch.sum, optimizer=torch.optim.AdamW(model.parameters()))
    assert not dist.is_initialized()
    assert type(model[0]) is Block
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), seed)
    assert all(each.grad is None for each in model.parameters())


def test_a_mesh_that_does_not_fit_says_who_needs_how_much_more():
    plan = planned(chain(), {"dp": 2}, memory="100 kB")
    assert not plan.fits
    assert "need" in str(plan)
    assert "does not fit" in str(plan)


def test_a_plan_for_ranks_is_saved_and_read_back(tmp_path):
    plan = planned(chain(2), {"dp": 2})
    assert json_io.load(plan.save(tmp_path / "plan.json")) == plan


def test_coordinates_are_those_of_a_device_mesh():
    mesh = Mesh(("pp", "dp", "tp"), (2, 3, 4))
    assert mesh.coordinates_of(0) == {"pp": 0, "dp": 0, "tp": 0}
    assert mesh.coordinates_of(17) == {"pp": 1, "dp": 1, "tp": 1}
    assert [len(stage) for stage in mesh.ranks_by_stage()] == [12, 12]
    assert mesh.ranks == math.prod(mesh.sizes)


@pytest.mark.parametrize(
    ("mesh", "more", "said"),
    [
        ({}, {}, "`parallel` cannot be"),
        ({"dp": 0}, {}, "the dimension"),
        ({"dp": 2, "tp": 2}, {}, "unknown dimension 'tp'"),
        ({"FSDP2": 2}, {}, "did you mean 'fsdp'"),
        ({"ddp": 2, "cp": 2}, {}, "unknown dimension 'cp'"),
        ({"shard": 2, "replicate": 2}, {}, "the combination of shard x replicate is not supported"),
        ({"dp": 2}, {"gpus": 4}, "4 GPUs are not the 2 ranks"),
        ({"dp": 2}, {"placement": "auto"}, "a mesh has no placement"),
        ({"dp": 2}, {"microbatches": 2}, "only a pipeline has microbatches"),
        (None, {"parallelize": tensor_parallel}, "`parallel` cannot be None"),
        ({"dp": 2}, {"parallelize": 3}, "`parallelize` is not a function"),
        ({"pp": 3}, {"microbatches": 3}, "equal parts"),
        ({"dp": 2}, {"parallelize": lambda model, mesh: 1 / 0}, "division by zero"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(mesh, more, said):
    with pytest.raises(DevwidgetError, match=said):
        planned(chain(2), mesh, **more)


def test_a_name_that_is_not_known_is_answered_with_every_form_that_has_a_plan():
    with pytest.raises(DevwidgetError) as told:
        planned(chain(2), {"data": 2})
    forms = {"ddp": 8}, {"fsdp": 8}, {"replicate": 2, "shard": 4}, {"pp": 4}, {"pp": 4, "fsdp": 2}
    for form in forms:
        assert json.dumps(form) in str(told.value)


@pytest.mark.parametrize("mesh", sample([{"replicate": 2, "shard": 2}, {"pp": 2, "fsdp": 2}, {"replicate": 2}], every=3))
def test_each_form_that_is_offered_has_a_plan(mesh):
    model = nn.Sequential(*(Block(64) for _ in range(2)))
    plan = planned(model, mesh, target=torch.zeros(8, 64), optimizer=torch.optim.SGD)
    assert plan.ways == (("DistributedDataParallel",) if mesh == {"replicate": 2} else ("FSDP2",))


def test_with_a_function_of_their_own_the_dimensions_have_any_names_and_the_plan_says_what_it_saw():
    def halves(model, mesh):
        fully_shard(model, mesh=mesh)

    plan = planned(chain(2), {"mine": 2}, parallelize=halves)
    assert str(plan).startswith("Plan: Sequential on mine 2, FSDP2: fits\n")
    assert planned(chain(2), {"mine": 2}, parallelize=lambda model, mesh: model).ways == ()
