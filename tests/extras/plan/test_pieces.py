"""A question in pieces says what it says at once, lets others run in between, and belongs to no cell."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch

from devwidget.extras.plan.records.plan import questions_of
from devwidget.extras.plan.screen.plan_panel import PlanWidget
from tests.extras.plan.test_what_if import Reader, plan, taken, texts, total

AT_ONCE = {
    "changes": lambda asked: asked.cheapest_change(),
    "batch": lambda asked: asked.largest_batch(),
    "cards": lambda asked: asked.on_cards(also=("LoRA", "inference")),
}


@pytest.mark.parametrize("question", ["batch", *(pytest.param(each, marks=pytest.mark.slow) for each in ("changes", "cards"))])
def test_in_pieces_the_answer_is_the_same(question):
    pieces = list(questions_of(asked := plan(64)).ask_between_cells(question))
    assert pieces == list(range(1, len(pieces) + 1))
    assert len(pieces) > 2
    assert asked.answers == (AT_ONCE[question](plan(64)),)


def test_another_setting_is_planned_as_if_it_were_asked_for():
    asked = plan(8)
    questions = questions_of(asked)
    setting = replace(questions.setting, batch=20, length=48, memory=(30 << 20,))
    list(questions.plan_between_cells(setting))
    model = Reader()
    from devwidget import plan as plan_step

    full = plan_step(model, {"ids": texts(20, 48)}, memory="30MiB", loss_fn=total, optimizer=torch.optim.AdamW)
    assert questions.tried[setting] == full
    assert questions_of(questions.tried[setting]).setting == setting


def test_what_a_model_prints_and_warns_belongs_to_no_cell(capsys):
    class Loud(Reader):
        def forward(self, ids):
            print("loud")
            return super().forward(ids)

    asked = plan(8, model=Loud())
    assert "loud" in capsys.readouterr().out
    list(questions_of(asked).plan_between_cells(replace(questions_of(asked).setting, batch=3)))
    assert capsys.readouterr() == ("", "")


def test_a_question_of_an_inference_plan_is_about_inference_wherever_it_is_asked():
    with torch.no_grad():
        asked = plan(8, loss_fn=None, optimizer=None)
    with torch.no_grad():
        smaller = plan(4, loss_fn=None, optimizer=None)
    setting = replace(questions_of(asked).setting, batch=4)
    list(questions_of(asked).plan_between_cells(setting))
    assert questions_of(asked).tried[setting].devices == smaller.devices
    runs = {run.setting.batch: run.on_card for run in asked.largest_batch().runs}
    assert runs[16] == taken(plan_inference(16))


def plan_inference(batch):
    with torch.no_grad():
        return plan(batch, loss_fn=None, optimizer=None)


def test_a_page_keeps_no_model_alive():
    model = Reader()
    asked = plan(8, model=model)
    page = PlanWidget(asked)
    sent = []
    page.control.send = sent.append
    gone = weakref.ref(model)
    del model, asked
    gc.collect()
    assert gone() is None
    page.control._handle_custom_msg({"ask": "question", "question": "batch", "id": 1}, [])
    assert "its model is not here" in sent[-1]["error"]
    page.close()


def test_a_broken_question_is_answered_with_what_is_wrong():
    page = PlanWidget(plan(8))
    sent = []
    page.control.send = sent.append
    for message in (None, [], {"ask": "setting"}, {"ask": "setting", "batch": True, "length": 3, "card": "", "memory": []}):
        page.control._handle_custom_msg(message, [])
    assert [bool(each.get("error")) for each in sent] == [False, False, True, True]
    page.close()


def test_random_numbers_and_the_model_stay_as_they_are():
    model = Reader()
    asked = plan(8, model=model)
    before = torch.random.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    list(questions_of(asked).ask_between_cells("changes"))
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert all(torch.equal(value, before[1][name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
