"""`place` finds a layout wherever the map of accelerate's "auto" fits, and no fuller, on GPUs that are not alike."""

import random

import pytest
import torch

import devwidget
from devwidget.extras.plan.layout import ALIKE
from devwidget.records.errors import DevwidgetError

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
MIB = 1 << 20
SETS = 40


def make_model():
    """Of weights that are most of what a step takes, so that where they go decides."""
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 4000}
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


def make_set(number):
    """One to four GPUs, together 0.9 to 2.5 times what the step takes on one."""
    chosen = random.Random(number)
    shares = [chosen.uniform(0.2, 1.0) for _ in range(chosen.randint(1, 4))]
    whole = chosen.uniform(0.9, 2.5) * whole_step()
    return [int(whole * share / sum(shares)) // MIB * MIB or MIB for share in shares]


def step():
    ids = torch.ones(2, 64, dtype=torch.long)
    return {"batch": {"input_ids": ids, "labels": ids}, "optimizer": torch.optim.AdamW}


def whole_step():
    if not hasattr(whole_step, "found"):
        whole_step.found = devwidget.plan(make_model(), gpus=1, memory="4GiB", **step()).devices[0].peak
    return whole_step.found


def fits_by_auto(memory):
    """Whether accelerate's map fits, and what is taken of the fullest GPU."""
    try:
        plan = devwidget.plan(make_model(), gpus=len(memory), memory=memory, placement="auto", **step())
    except DevwidgetError:
        return False, 0.0
    on_gpus = all(device.startswith("cuda") for _, device in plan.device_map)
    return plan.fits and on_gpus, max(each.on_card / each.capacity for each in plan.devices)


def compare(number):
    memory = make_set(number)
    auto, fullest = fits_by_auto(memory)
    try:
        layout = devwidget.place(make_model(), gpus=len(memory), memory=memory, **step())
    except DevwidgetError:
        return auto, False, fullest, 0.0
    return auto, layout.fits, fullest, max(gpu.on_card / gpu.capacity for gpu in layout.devices)


@pytest.mark.slow
@pytest.mark.parametrize("number", [4, 5, 20])
def test_place_fits_where_auto_does_and_no_gpu_is_fuller(number):
    auto, placed, fullest, ours = compare(number)
    assert auto
    assert placed
    assert ours <= fullest + ALIKE


@pytest.mark.fuzz
@pytest.mark.timeout(1200)
def test_place_fits_where_auto_does_and_no_gpu_is_fuller_on_forty_sets():
    found = [compare(number) for number in range(SETS)]
    both = [row for row in found if row[0] and row[1]]
    print(f"{SETS} sets: place fits {sum(row[1] for row in found)}, auto {sum(row[0] for row in found)}")
    fuller, emptier = sum(row[3] > row[2] for row in both), sum(row[3] < row[2] for row in both)
    print(f"where both fit, {len(both)}: fuller than auto {fuller}, less full {emptier}")
    assert [number for number, (auto, placed, _, _) in enumerate(found) if auto and not placed] == []
    assert [number for number, (auto, _, fullest, ours) in enumerate(found) if auto and ours > fullest + ALIKE] == []
    assert len(both) >= 5


@pytest.mark.slow
def test_what_fits_closer_than_the_layout_that_is_shown_is_told():
    layout = devwidget.place(make_model(), gpus=2, memory=make_set(4), **step())
    assert layout.hops > 0
    assert any(each.why.startswith("fits, and cuda:1 needs 9") for each in layout.rejected)
