"""What a plan says of DDP is what the real DDP keeps, buckets and all, whatever its settings."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import devwidget
from devwidget.extras.plan.parallel import run_in_fork
from devwidget.records.errors import DevwidgetError
from tests.extras.plan.test_real_fsdp import LiveBytes
from tests.sampling import sample

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("copies_run_backward")]
WIDTH, LAYERS, RANKS = 256, 5, 3
BATCH = torch.zeros(4, WIDTH)
MANY = torch.zeros(1024, WIDTH)
OF_ALL = LAYERS * (WIDTH * WIDTH + WIDTH) * 4


def model_of():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def real_peak(settings, optimizer):
    """Of three steps of a job of one process, whose collectives are real; as on a GPU it steps for all parameters together."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = model_of()
    with LiveBytes(model.parameters()) as live:
        parallel = DistributedDataParallel(model, **settings)
        steps = optimizer(parallel.parameters(), foreach=True)
        for _ in range(3):
            steps.zero_grad()
            parallel(BATCH).sum().backward()
            steps.step()
    return live.peak


LOOPS = {
    "accumulated": {"accumulate": 3},
    "plain": {"loop": "plain"},
    "trainer": {"loop": "trainer"},
    "recomputed": {"checkpointing": True},
    "kept": {"zero_grad": "zero"},
}


class Blocks(nn.Module):
    """Each with more inside than what goes in and out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)
        )
        self.is_recomputed = False

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.is_recomputed else layer(x)
        return x


def real_peak_of_loop(accumulate=1, loop="step", zero_grad="none", checkpointing=False):
    """Of the same loop, written out."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = Blocks()
    model.is_recomputed = checkpointing
    with LiveBytes(model.parameters()) as live:
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(parallel.parameters(), foreach=True)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=zero_grad == "none")
            for _ in range(accumulate):
                out = parallel(MANY)
                loss = out.sum()
                if loop == "trainer":
                    del out
                loss.backward()
            if loop == "trainer":
                nn.utils.clip_grad_norm_(parallel.parameters(), 1.0)
            optimizer.step()
            if loop == "step":
                del out, loss
    return live.peak


@pytest.mark.parametrize("name", sample(LOOPS, every=3))
def test_a_plan_of_another_loop_peaks_where_that_does(name):
    asked = LOOPS[name]
    plan = devwidget.plan(Blocks(), MANY, parallel={"ddp": RANKS}, loss_fn=torch.sum, optimizer=torch.optim.AdamW, **asked)
    assert plan.ranks[0].peak == pytest.approx(run_in_fork(lambda: real_peak_of_loop(**asked)), rel=0.005)


def wrapped(model, mesh, settings):
    return DistributedDataParallel(model, **settings)


@pytest.mark.parametrize(
    ("settings", "optimizer"), [({}, torch.optim.AdamW), ({"gradient_as_bucket_view": True}, torch.optim.SGD)]
)
def test_a_plan_peaks_where_real_ddp_does(settings, optimizer):
    asked = {"parallelize": functools.partial(wrapped, settings=settings)} if settings else {}
    step = {"loss_fn": torch.sum, "optimizer": optimizer, **asked}
    plan = devwidget.plan(model_of(), BATCH, parallel={"ddp": RANKS}, **step)
    real = run_in_fork(lambda: real_peak(settings, optimizer))
    assert plan.ranks[0].peak == pytest.approx(real, rel=0.02)


def test_a_replica_has_all_parameters_their_gradients_and_buckets_of_as_many_bytes():
    plan = devwidget.plan(model_of(), BATCH, parallel={"ddp": RANKS}, loss_fn=torch.sum, optimizer=torch.optim.AdamW)
    (rank,) = plan.ranks
    assert rank.ranks == ((0, RANKS - 1),)
    for part, times in (("parameters", 1), ("gradients", 1), ("buckets", 1), ("optimizer", 2), ("gathered", 0)):
        assert getattr(rank, part) == pytest.approx(times * OF_ALL, rel=0.02), part
    assert str(plan).startswith("Plan: Sequential on ddp 3, DistributedDataParallel: fits\n")


class LeftOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.used(x)


def test_a_parameter_that_a_step_leaves_out_is_refused_as_the_real_ddp_does():
    with pytest.raises(DevwidgetError, match="the step leaves out parameters"):
        devwidget.plan(LeftOut(), BATCH, parallel={"ddp": RANKS}, loss_fn=torch.sum)


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_an_option_whose_reducer_reads_values_is_refused_by_its_name(option):
    def wrap(model, mesh):
        return DistributedDataParallel(model, process_group=mesh["ddp"].get_group(), **{option: True})

    with pytest.raises(DevwidgetError, match=f"`{option}=True` cannot be planned"):
        devwidget.plan(model_of(), BATCH, parallel={"ddp": RANKS}, parallelize=wrap, loss_fn=torch.sum)
