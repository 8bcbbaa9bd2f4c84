"""What can be done with a model on which card: each cell is the plan that says so, with a change where it needs one."""

import functools

import pytest
import torch

import devwidget
from devwidget.extras.plan.changes import Changed, Option
from devwidget.extras.plan.fine_tuning import AdamW8bit, add_adapters
from devwidget.extras.plan.on_cards import ModelUse, plan_row
from devwidget.extras.plan.questions import answer_at_once
from devwidget.extras.plan.records.answers import AskedSize, Room, Tried, find_first
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io

transformers = pytest.importorskip("transformers")
GIB = 1 << 30
CARDS = "T4", "A10", "A100-40GB"


def make_model():
    """Activations are most of what its training takes."""
    sizes = {"hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 2, "num_attention_heads": 16}
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32000, **sizes))


def step():
    ids = torch.ones(24, 1024, dtype=torch.long)
    return {"input_ids": ids, "labels": ids}


def plan(model=None, batch=None, **asked):
    model, batch = make_model() if model is None else model, step() if batch is None else batch
    return devwidget.plan(model, batch, **{"card": "T4", "optimizer": torch.optim.AdamW, **asked})


@functools.cache
def rows():
    found = plan().on_cards(*CARDS, also=("LoRA", "inference"))
    return {row.what: row for row in found.rows}


@pytest.mark.slow
def test_each_cell_of_training_is_the_plan_with_its_change():
    changed = {
        "": {},
        "checkpointing": {"checkpointing": True},
        "checkpointing and 8-bit AdamW": {"checkpointing": True, "optimizer": AdamW8bit},
    }
    cells = rows()["training"].cards
    assert [cell.setting.card for cell in cells] == list(CARDS)
    assert len({cell.what for cell in cells}) > 1
    for cell in cells:
        ran = plan(card=cell.setting.card, **changed[cell.what])
        assert (cell.on_card, cell.fit) == (ran.tightest.on_card, ran.fit)


def test_lora_trains_adapters_alone_and_inference_runs_the_forward_without_labels():
    lora, inference = rows()["LoRA"].cards[-1], rows()["inference"].cards[-1]
    ran = plan(add_adapters(make_model()), card=lora.setting.card)
    assert (lora.what, lora.on_card) == ("", ran.tightest.on_card)
    with torch.no_grad():
        forward = plan(make_model().eval(), {"input_ids": step()["input_ids"]}, card=lora.setting.card, optimizer=None)
    assert (inference.what, inference.on_card) == ("", forward.tightest.on_card)


@pytest.mark.slow
def test_the_model_is_as_it_was():
    model = make_model()
    before = [(name, each.requires_grad) for name, each in model.named_parameters()]
    plan(model).on_cards("T4", also=("LoRA", "inference"))
    assert [(name, each.requires_grad) for name, each in model.named_parameters()] == before
    assert model.training


def test_what_is_none_is_refused():
    asked = plan()
    with pytest.raises(DevwidgetError, match="`also` cannot be"):
        asked.on_cards(also=("Lora",))
    with torch.no_grad(), pytest.raises(DevwidgetError, match="LoRA is for a step that trains"):
        plan(make_model().eval(), optimizer=None).on_cards(also=("LoRA",))


CAPACITIES = {"T4": 14, "A10": 20, "A100-40GB": 40}


def test_changes_are_tried_from_the_largest_card_down_as_long_as_one_helps():
    taken, run = {"": 45, "less": 30, "least": 25}, []

    def plan_one(wanted):
        change, card = wanted.asked.get("change", ""), wanted.asked["card"]
        run.append((card, change))
        return Plan("Net", "as is", (), (DevicePlan(DeviceId("cuda", 0), CAPACITIES[card] * GIB, taken[change] * GIB),))

    changes = [Option(each, Changed(asked={"change": each})) for each in ("less", "least")]
    row = answer_at_once(
        plan_row(ModelUse("training", "", (Option(), *changes)), [AskedSize(card=name) for name in CARDS]), plan_one
    )
    small, middle, large = CARDS
    assert run == [(large, ""), (large, "less"), (middle, ""), (middle, "less"), (middle, "least"), (small, "")]
    assert [(each.setting.card, each.what, each.fits) for each in row.cards] == [
        (small, "", False), (middle, "least", False), (large, "less", True),
    ]  # fmt: skip
    assert find_first(row.cards) == Tried("less", Room(40 * GIB, 30 * GIB, "fits"), setting=AskedSize(card=large))


def test_a_row_goes_to_a_file_and_a_frame_and_back():
    found = plan().on_cards(*CARDS, also=("inference",))
    assert json_io.loads(json_io.dumps(found)) == found
    assert found.to_frame("rows")["what"].tolist() == ["training"] * 3 + ["inference"] * 3
    assert plan().on_cards("T4").rows == ()
