"""The loops that people write: what is planned of each is what the same loop takes with values."""

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import devwidget
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io
from tests.extras.plan.test_what_if import Block

MIB = 1 << 20


class Tagger(nn.Module):
    """Blocks and a head whose output is large beside what they keep."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(3))
        self.head = nn.Linear(64, 2048)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Recomputed(Tagger):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


X = torch.randn(256, 64)
ADAM = torch.optim.AdamW


def summed(out):
    """A loss that makes nothing as large as the output, whose life then tells."""
    return out.sum()


def planned(model=None, **asked):
    given = {"memory": "1GiB", "loss_fn": summed, "optimizer": ADAM, **asked}
    return devwidget.plan(model or Tagger(), X, **given)


def peak(**asked):
    return planned(**asked).devices[0].peak


def measured(run, model=None):
    """The peak of a program of one's own, with values."""
    with devwidget.simulate(1, 1 << 60):
        model = (model or Tagger()).cuda()
        run(model, X.cuda(), ADAM(model.parameters()))
        return torch.cuda.max_memory_allocated()


def plain(model, x, optimizer):
    for _ in range(3):
        out = model(x)
        loss = summed(out)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def stepwise(model, x, optimizer):
    def make_step():
        out = model(x)
        summed(out).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        make_step()


def as_trainer(model, x, optimizer):
    for _ in range(3):
        summed(model(x)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()


RUNS = {"plain": plain, "step": stepwise, "trainer": as_trainer}


@pytest.mark.parametrize("loop", RUNS)
def test_each_loop_is_predicted_to_the_byte(loop):
    assert peak(loop=loop) == measured(RUNS[loop])


def test_loops_differ_and_where_none_is_named_the_others_are_told():
    found = planned()
    peaks = {loop: peak(loop=loop) for loop in RUNS}
    assert peaks["trainer"] < peaks["step"] < peaks["plain"]
    assert found.loop.name == "step"
    assert {other.name: other.peak for other in found.other_loops} == {name: peaks[name] for name in ("plain", "trainer")}
    assert planned(loop="step").other_loops == ()
    told = next(line for line in str(found).splitlines() if line.startswith("loop: "))
    assert 'loop="plain" allocates' in told
    assert 'loop="trainer" allocates' in told


def test_a_loop_for_which_there_is_no_room_is_told_beside_one_that_fits():
    least, most = peak(loop="step"), peak(loop="plain")
    found = planned(memory=(least + most) // 2)
    assert found.fits
    assert [other.fits for other in found.other_loops] == [False, True]
    assert "too much" in str(found)


def accumulating(model, x, optimizer):
    for _ in range(2):
        for _ in range(3):
            out = model(x)
            loss = summed(out)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def test_gradients_of_several_batches_are_there_in_the_next_forward():
    found = planned(loop="plain", accumulate=3)
    assert found.devices[0].peak == measured(accumulating)
    assert found.devices[0].peak > peak(loop="plain")
    assert "3 batches accumulated" in str(found)


def keeping(model, x, optimizer):
    for _ in range(3):
        out = model(x)
        loss = summed(out)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def test_gradients_that_are_set_to_zero_stay():
    found = planned(loop="plain", zero_grad="zero")
    assert found.devices[0].peak == measured(keeping)
    assert found.devices[0].gradients == found.devices[0].weights
    changes = {change.what: change.on_card for change in found.cheapest_change().changes}
    assert changes["gradients set to none"] == peak(loop="plain")


def halved(dtype, scaled, model, x, optimizer):
    scaler = torch.amp.GradScaler("cuda", init_scale=1.0, enabled=scaled)
    for _ in range(3):
        with torch.autocast("cuda", dtype):
            out = model(x)
            loss = summed(out)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@pytest.mark.parametrize(("dtype", "scaled"), [(torch.bfloat16, False), (torch.float16, True)])
def test_autocast_and_a_scaler_of_the_loss_are_predicted_to_the_byte(dtype, scaled):
    found = planned(loop="plain", autocast=dtype, grad_scaler=scaled)
    assert found.devices[0].peak == measured(functools.partial(halved, dtype, scaled))
    assert ("GradScaler" in str(found)) == scaled
    assert found.devices[0].peak != peak(loop="plain")


def test_autocast_around_the_plan_is_honoured_where_torch_leaves_it_on():
    with devwidget.simulate(1), torch.autocast("cuda", torch.bfloat16):
        found = planned(loop="plain")
    assert found.loop.autocast == "bfloat16"
    assert found.devices[0].peak == peak(loop="plain", autocast=torch.bfloat16)


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_autocast_around_the_plan_that_torch_has_switched_off_is_refused():
    with torch.autocast("cuda", torch.bfloat16):
        with pytest.raises(DevwidgetError, match="autocast is active around the plan") as refused:
            planned()
        without = peak(loop="plain", autocast=False)
    assert "autocast=torch.bfloat16" in refused.value.instead
    assert without == peak(loop="plain")
    context = torch.autocast("cuda", torch.bfloat16)
    assert peak(loop="plain", autocast=context) == peak(loop="plain", autocast=torch.bfloat16)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("way", [True, "reentrant"])
def test_checkpointing_of_the_blocks_is_what_a_model_that_does_it_takes(way):
    found = planned(loop="plain", checkpointing=way)
    assert found.devices[0].peak == measured(plain, Recomputed(way == "reentrant"))
    assert found.devices[0].peak < peak(loop="plain")
    assert "checkpointing" in str(found)
    assert not any(change.what == "activation checkpointing" for change in found.cheapest_change().changes)


def own_loop(model, x, optimizer):
    while True:
        out = model(x)
        loss = out.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def own_step(model, x, optimizer):
    out = model(x)
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(("loop", "same"), [(own_loop, "plain"), (own_step, "step")])
def test_a_loop_of_ones_own_is_run_as_it_is(loop, same):
    found = planned(loss_fn=None, loop=loop)
    assert found.devices[0].peak == peak(loop=same)
    assert found.phases == ("forward", "loss", "backward", "optimizer")
    assert found.devices[0].peak_at.phase == planned(loop=same).devices[0].peak_at.phase
    assert f"loop: `{loop.__name__}`" in str(found)
    assert found.largest_batch().size > 256


def ends(model, x, optimizer):
    model(x)
    yield


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"loop": "trainr"}, "did you mean"),
        ({"accumulate": 0}, "`accumulate` is 0"),
        ({"autocast": 16}, "`autocast` is a `int`"),
        ({"grad_scaler": 1}, "neither True nor False"),
        ({"zero_grad": "never"}, "`zero_grad` cannot be"),
        ({"checkpointing": "some"}, "`checkpointing` is 'some'"),
        ({"optimizer": None, "grad_scaler": True}, "for a step with an optimizer"),
        ({"loop": own_loop}, "computes its own loss"),
        ({"loop": own_loop, "loss_fn": None, "accumulate": 2}, "contains these already"),
        ({"loop": ends, "loss_fn": None}, "has ended before its second step"),
        ({"parallel": {"pp": 2}, "loop": "plain"}, "only supports the loop"),
    ],
)
def test_what_is_no_loop_is_refused_with_what_would_be_right(asked, told):
    with pytest.raises(DevwidgetError, match=told) as refused:
        planned(**asked)
    assert refused.value.instead


def test_a_first_question_needs_no_number_of_gpus():
    assert len(devwidget.plan(Tagger(), X, memory="1GiB").devices) == 1
    assert len(devwidget.plan(Tagger(), X, memory=["1GiB", "2GiB"]).devices) == 2
    assert planned() == json_io.loads(json_io.dumps(planned()))
