"""`devwidget.plan`: predicted peaks, what does not fit, and that the model is only read."""

import copy

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.step.batch import Arguments
from devwidget.extras.plan.records.plan import DevicePlan, Plan, PlanMoment
from devwidget.extras.plan.rehearsal import MeanStep
from devwidget.gpus.card_models import CARDS
from devwidget.records.device import DeviceId
from devwidget.records.errors import SimulationError
from devwidget.records.loading import json_io
from devwidget.records.site import Site
from tests.extras.plan.measured import measured, total

MIB = 1 << 20


def mlp():
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))


def peaks(plan):
    return [device.peak for device in plan.devices]


@pytest.mark.parametrize("optimizer", [None, torch.optim.AdamW])
def test_prediction_equals_the_measured_peak(optimizer):
    batch = {"input": torch.randn(64, 1024)}
    plan = devwidget.plan(mlp(), batch, gpus=1, memory="1GiB", loss_fn=total, optimizer=optimizer)
    assert peaks(plan) == measured(mlp(), batch, total, optimizer)


def test_data_parallel_is_predicted_within_two_percent():
    gpus, batch = 3, {"input": torch.randn(64, 1024)}
    plan = devwidget.plan(mlp(), batch, gpus=gpus, memory="1GiB", loss_fn=total, placement="data parallel")
    assert peaks(plan) == pytest.approx(measured(mlp(), batch, total, None, gpus=gpus, parallel=True), rel=0.02)


def test_parts_add_up_and_are_what_adam_needs():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    device = devwidget.plan(model, torch.randn(8, 1024), gpus=1, memory="1GiB", loss_fn=total, optimizer=optimizer).devices[0]
    weights = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert (device.weights, device.gradients) == (weights, weights)
    assert device.optimizer == pytest.approx(2 * weights, rel=0.01)
    assert device.weights + device.gradients + device.optimizer + device.activations == device.peak


def test_the_module_that_tips_it_over_is_named():
    plan = devwidget.plan(mlp(), torch.randn(1024, 1024), gpus=1, memory=40 * MIB)
    tips = plan.devices[0].tips_over
    assert (plan.fits, tips.phase, tips.module, tips.site) == (False, "forward", "0", None)
    assert plan.devices[0].peak > 40 * MIB
    placing = devwidget.plan(mlp(), torch.randn(1, 1024), gpus=1, memory=10 * MIB)
    assert placing.devices[0].tips_over == PlanMoment("build", "0")


def test_a_capacity_that_is_exceeded_before_the_step_that_is_drawn_is_said_to_be_exceeded_in_the_first_one():
    model = mlp()
    adam = torch.optim.AdamW(model.parameters())
    plan = devwidget.plan(model, torch.randn(64, 1024), gpus=1, memory=40 * MIB, loss_fn=torch.sum, optimizer=adam)
    assert (plan.devices[0].tips_over.is_earlier, plan.devices[0].peak_at.is_earlier) == (True, False)
    assert "more: in the first step, " in str(plan)
    one_step = devwidget.plan(model, torch.randn(1024, 1024), gpus=1, memory=40 * MIB)
    assert not one_step.devices[0].tips_over.is_earlier


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1024, 4096)

    def forward(self, x):
        return torch.relu(self.up(x)).square()


def test_the_line_that_tips_it_over_is_named_in_the_model_and_in_the_loss():
    batch = torch.randn(1024, 1024)
    inside = devwidget.plan(nn.Sequential(Wide()), batch, gpus=1, memory=40 * MIB).devices[0].tips_over
    assert (inside.module, inside.site.file, inside.site.text) == ("0", __file__, "return torch.relu(self.up(x)).square()")
    loss_fn = lambda out: torch.cat([out] * 8).sum()
    after = devwidget.plan(mlp(), batch, gpus=1, memory=74 * MIB, loss_fn=loss_fn).devices[0].tips_over
    assert (after.phase, after.module, after.site.file) == ("loss", None, __file__)


class Decides(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 1)

    def forward(self, x):
        return x if self.gate(x).sum() > 0 else -x


def test_a_step_that_decides_by_values_says_on_which_line():
    with pytest.raises(SimulationError, match=r"the forward depends on values .* at test_plan.py:\d+, `return x if self.gate"):
        devwidget.plan(Decides(), torch.randn(2, 4), gpus=1, memory="1GiB")


class Routed(nn.Module):
    """Two experts, each for the tokens that the router chooses for it."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 2)
        self.experts = nn.ModuleList([nn.Linear(8, 1024), nn.Linear(8, 1024)])

    def forward(self, x):
        chosen = self.router(x).argmax(-1)
        return torch.cat([expert(x[chosen == number]) for number, expert in enumerate(self.experts)])


def test_a_choice_among_unknown_numbers_is_guessed_and_told():
    plan = devwidget.plan(Routed(), torch.randn(64, 8), gpus=1, memory="1GiB")
    assert plan.devices[0].activations == pytest.approx(2 * 64 * 1024 * 4, rel=0.05)
    assert [(guess.phase, guess.module, guess.site.file) for guess in plan.guesses] == [("forward", "", __file__)]
    assert str(plan).splitlines()[-1] == (
        f"estimated in the model itself in forward (test_plan.py:{plan.guesses[0].site.line}): "
        "choices that depend on unknown values are spread evenly"
    )
    assert json_io.loads(json_io.dumps(plan)) == plan
    assert not devwidget.plan(mlp(), torch.randn(2, 1024), gpus=1, memory="1GiB").guesses


class Masked(nn.Module):
    """Two buffers that are parts of one storage, one of them expanded, by which the step decides."""

    def __init__(self):
        super().__init__()
        whole = torch.arange(6)
        self.register_buffer("first", whole[:1].expand(2, 1))
        self.register_buffer("second", whole[3:])
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        assert (self.first.tolist(), self.second.tolist()) == ([[0], [0]], [3, 4, 5])
        return self.inner(x)


@pytest.mark.parametrize("placement", ["as is", {"": 0}])
def test_buffers_of_one_storage_keep_their_values_wherever_they_go(placement):
    pytest.importorskip("accelerate")
    assert devwidget.plan(Masked(), torch.randn(2, 4), gpus=1, memory="1GiB", placement=placement).fits


def test_a_part_of_a_large_tensor_is_moved_alone():
    data = torch.randn(1 << 16, 8)
    assert devwidget.plan(nn.Linear(8, 8), data[:4], gpus=1, memory="1GiB").devices[0].peak == 4 * 512


def test_device_map_and_proposal_spread_the_weights():
    pytest.importorskip("accelerate")
    batch = torch.randn(8, 1024)
    plan = devwidget.plan(mlp(), batch, gpus=2, memory="1GiB", loss_fn=total, placement={"0": 0, "1": 0, "2": "cuda:1"})
    assert all(16 * MIB < device.weights < 17 * MIB for device in plan.devices)
    assert plan.device_map == (("0", "cuda:0"), ("1", "cuda:0"), ("2", "cuda:1"))
    assert devwidget.plan(mlp(), batch, gpus=2, memory="1GiB", placement="auto").device_map


def test_model_and_random_state_are_only_read():
    model, batch = nn.Sequential(mlp(), nn.Dropout()), torch.randn(8, 1024)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    devwidget.plan(model, batch, gpus=1, memory="1GiB", loss_fn=total, optimizer=torch.optim.AdamW)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


class WithPositions(nn.Module):
    """A model with a buffer of numbers that it looks up, as transformers have."""

    def __init__(self):
        super().__init__()
        self.register_buffer("positions", torch.arange(64).expand((1, -1)))
        self.register_buffer("scale", torch.ones(64))
        self.words = nn.Embedding(64, 64)

    def forward(self, ids):
        return self.words(ids + self.positions[:, : ids.shape[1]]) * self.scale


def test_buffers_of_a_meta_model_are_unknown_and_counted():
    with torch.device("meta"):
        model = WithPositions()
    batch = torch.zeros(2, 8, dtype=torch.long)
    placed = [devwidget.plan(each, batch, gpus=1, memory="1GiB") for each in (model, WithPositions())]
    assert peaks(placed[0]) == peaks(placed[1])
    assert placed[0].devices[0].weights == 64 * 64 * 4 + 64 * 8 + 512


def test_tied_weights_count_once_and_a_meta_model_will_do():
    tied = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    tied[1].weight = tied[0].weight
    plan = devwidget.plan(tied, torch.randn(8, 512), gpus=1, memory="1GiB")
    assert plan.devices[0].weights == 512 * 512 * 4 + 2 * 512 * 4
    with torch.device("meta"):
        large = nn.Linear(1 << 17, 1 << 17)
    assert devwidget.plan(large, torch.randn(1, 1 << 17), gpus=1, memory="80GiB").devices[0].weights == (1 << 36) + (1 << 19)


def test_a_card_is_planned_with_what_its_allocator_reserves_and_its_context():
    batch = {"input": torch.randn(64, 1024)}
    plan = devwidget.plan(mlp(), batch, gpus=1, card="A100-80GB", loss_fn=total, optimizer=torch.optim.AdamW)
    gpu, card = plan.devices[0], CARDS["a100-80gb"]
    assert (gpu.peak, gpu.reserved) == measured_on("A100-80GB", mlp(), batch)
    assert gpu.context == card.context_bytes
    assert gpu.on_card == gpu.reserved + card.context_bytes
    assert plan.fits
    assert "Sequential, as is on A100-80GB: fits" in str(plan)
    assert "on the card  reserved  allocated" in str(plan)
    assert json_io.loads(json_io.dumps(plan)) == plan
    assert plan.to_frame()["on_card"].tolist() == [gpu.on_card]
    assert "of context; may be" in plan.to_html()


def measured_on(card, model, batch):
    """What the same two steps allocate and reserve on a virtual card, with values."""
    with devwidget.simulate(1, card=card):
        model.cuda()
        step = MeanStep(model, Arguments((), {"input": batch["input"].cuda()}), total, torch.optim.AdamW(model.parameters()))
        for _ in range(2):
            for _, run in step.list_phases():
                run()
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def test_what_fits_by_bytes_but_not_with_its_context_does_not_fit():
    model, batch = nn.Linear(1 << 15, 120_500, bias=False, device="meta"), torch.empty(1, 1 << 15, device="meta")
    small = devwidget.plan(model, batch, gpus=1, memory=CARDS["t4"].memory_bytes)
    on_card = devwidget.plan(model, batch, gpus=1, card="T4")
    assert small.fits
    assert not on_card.fits
    assert on_card.devices[0].peak < on_card.devices[0].capacity < on_card.devices[0].on_card
    assert "more: placing the model is the first to exceed it" in str(on_card)


TIPS = PlanMoment("forward", "decoder.head", Site("/code/model.py", 7, "x = self.head(x)", "forward"))
ROW = DevicePlan(DeviceId("cuda", 0), 2 * MIB, 3 * MIB, MIB, 0, 0, 2 * MIB, TIPS, TIPS)
PLAN = Plan("Net<2>", "device map", ("forward", "loss"), (ROW,), (("decoder", "cuda:0"),))


@pytest.mark.parametrize(
    ("placement", "moment", "words"),
    [
        ("as is", PlanMoment("build", "head"), "placing `head`"),
        ("as is", PlanMoment("build", None), "placing the model"),
        ("as is", PlanMoment("optimizer", None), "the optimizer's step"),
        ("as is", PlanMoment("forward", ""), "the model itself in forward"),
        ("data parallel", PlanMoment("forward", ""), "what DataParallel copies in forward"),
        ("as is", PlanMoment("loss", None, Site("train.py", 3)), "the loss (train.py:3)"),
    ],
)
def test_moments_in_words(placement, moment, words):
    device = DevicePlan(DeviceId("cuda", 0), 1, 2, tips_over=moment)
    assert f" more: {words} is the first to exceed it" in str(Plan("Net", placement, (), (device,)))


def test_frames_of_a_plan():
    row = PLAN.to_frame().iloc[0]
    assert (row["device"], row["peak"], row["activations"], bool(row["fits"])) == ("cuda:0", 3 * MIB, 2 * MIB, False)
    assert (row["tips_over_module"], row["tips_over_site"]) == ("decoder.head", "model.py:7")
    assert PLAN.to_frame("device_map").to_dict("list") == {"path": ["decoder"], "device": ["cuda:0"]}
    with pytest.raises(ValueError, match="Plan has no table 'device'"):
        PLAN.to_frame("device")
