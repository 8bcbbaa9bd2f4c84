"""Ranks of a mesh are run on virtual GPUs: the allocator of a card, autocast, loops of one's own, and FSDP1 are as there."""

import functools

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import devwidget
from devwidget.extras.plan.parallel import run_in_fork
from devwidget.extras.plan.parallel.rank_step import join_fake_group

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("copies_run_backward")]
WIDTH, LAYERS = 2000, 4
BATCH = torch.zeros(20, WIDTH)
ASKED, GIVEN = WIDTH * WIDTH * 4, 16 * 2**20
"""Bytes of a weight, and of the segment that the allocator takes for it and does not divide."""


def model_of():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def planned(mesh, **asked):
    step = {"loss_fn": torch.sum, "optimizer": torch.optim.AdamW, **asked}
    return devwidget.plan(model_of(), BATCH, parallel=mesh, **step)


def test_on_a_card_a_rank_takes_what_the_allocator_gives():
    (free,), (on_card,) = planned({"ddp": 2}).ranks, planned({"ddp": 2}, card="A100-80GB").ranks
    assert (free.parameters, free.reserved, free.context) == (LAYERS * ASKED, 0, 0)
    assert on_card.parameters == LAYERS * GIVEN
    assert on_card.fits
    assert on_card.peak <= on_card.reserved < on_card.on_card == on_card.reserved + on_card.context
    assert "reserved" in str(planned({"ddp": 2}, card="A100-80GB"))


def test_ranks_run_under_autocast_and_scale_the_loss():
    whole, halved = planned({"ddp": 2}), planned({"ddp": 2}, autocast=torch.bfloat16, grad_scaler=True)
    assert "autocast to bfloat16 · GradScaler" in str(halved)
    # Each weight is cast for its product, and kept so for backward.
    taken = [next(each.bytes for each in plan.ranks[0].phases if each.phase == "forward") for plan in (whole, halved)]
    assert taken[1] - taken[0] == pytest.approx(LAYERS * ASKED // 2, rel=0.02)
    assert planned({"fsdp": 2}, autocast=torch.bfloat16).loop.autocast == "bfloat16"


def test_ranks_run_a_loop_of_ones_own():
    def accumulate(model, batch, optimizer):
        while True:
            for _ in range(2):
                model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            yield

    plan = planned({"ddp": 2}, loop=accumulate, loss_fn=None)
    assert plan.loop.is_own
    assert plan.ranks[0].gradients == LAYERS * ASKED
    assert {each.phase for each in plan.ranks[0].phases} >= {"forward", "backward", "optimizer"}


def wrap(model, mesh, **settings):
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), use_orig_params=True, **settings)


def real_peak():
    """Of two steps with values of one of two ranks of FSDP1, whose collectives take memory and bring nothing."""
    with devwidget.simulate(1):
        join_fake_group(0, 2)
        model = wrap(model_of().cuda(), None, device_id=0)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            optimizer.zero_grad()
            model(BATCH.cuda()).sum().backward()
            optimizer.step()
        return torch.cuda.max_memory_allocated()


def test_a_plan_peaks_where_real_fsdp1_does():
    plan = planned({"fsdp": 2}, parallelize=functools.partial(wrap, device_id=0))
    assert plan.ways == ("FSDP",)
    assert plan.ranks[0].peak == pytest.approx(run_in_fork(real_peak), rel=0.02)
    assert plan.ranks[0].most_gathered >= ASKED
