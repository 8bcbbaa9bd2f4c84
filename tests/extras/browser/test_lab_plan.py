"""A plan in a real JupyterLab: shown live, planned between cells, cancelled, and saved as it was seen last."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow
CELLS = [
    "import torch\nimport devwidget\nfrom tests.extras.plan.test_what_if import Reader, texts, total\n"
    "plan = devwidget.plan(Reader(), {'ids': texts(8)}, memory='24MiB', loss_fn=total, optimizer=torch.optim.AdamW)\nplan",
    "import random\nbefore = torch.random.get_rng_state(), random.getstate()",
    "import pathlib, time\nwhile not pathlib.Path('on').exists():\n    time.sleep(0.1)\nprint('slept')",
]  # fmt: skip
SLOW = """
from devwidget.extras.plan.records.plan import questions_of
questions = questions_of(plan)
step = questions.again
def slow(*asked):
    time.sleep(5)
    print("this is nobody's output")
    return step(*asked)
questions.again = slow
"""


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("plan.ipynb", [*CELLS, SLOW])
    opened = lab.open(browser, "plan.ipynb")
    yield opened
    opened.close()


def panel(session):
    return session.page.locator(".jp-Cell").nth(0).locator(".dw-plan:visible")


def slide(session, keys):
    slider = panel(session).get_by_role("slider", name="batch")
    slider.focus()
    for _ in range(abs(keys)):
        session.page.keyboard.press("ArrowRight" if keys > 0 else "ArrowLeft")


def test_a_plan_is_a_page_with_sliders_and_shown_once(session):
    session.run(0)
    expect(panel(session)).to_have_count(1)
    expect(panel(session).get_by_role("slider")).to_have_count(3)


def test_another_size_is_planned_and_nothing_of_the_user_is_touched(session):
    session.run(1)
    slide(session, 2)
    expect(panel(session).locator(".dw-facts")).to_contain_text("batch 10 × length 32")
    assert (
        session.python("(torch.random.get_rng_state() == before[0]).all().item() and random.getstate() == before[1]") == "True"
    )


def test_a_size_asked_for_while_a_cell_runs_is_planned_after_it(session, lab):
    session.start(2)
    slide(session, 1)
    (lab.notebooks / "on").touch()
    expect(panel(session).locator(".dw-facts")).to_contain_text("batch 11 × length 32")
    expect(session.page.locator(".jp-Cell").nth(2).locator(".jp-OutputArea-output")).to_have_text(re.compile("slept"))


def test_a_run_of_many_plans_lets_cells_run_between_and_can_be_cancelled(session):
    session.run(3)
    panel(session).get_by_role("button", name="Find the largest batch").first.click()
    expect(panel(session).locator(".dw-status")).to_contain_text(re.compile(r"\d plans? run"))
    assert session.python("1 + 1") == "2"
    panel(session).get_by_role("button", name="Cancel").click()
    expect(panel(session).locator(".dw-status")).to_contain_text("cancelled")
    expect(panel(session).locator(".dw-facts")).to_contain_text("batch 11 × length 32")
    assert "nobody" not in "".join(session.page.locator(".jp-OutputArea").all_inner_texts())
    assert session.python("__import__('devwidget').gpus.active() is None") == "True"


def test_what_was_seen_last_is_what_is_saved(session):
    outputs = session.notebook().cells[0].outputs
    (saved,) = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "batch 11 × length 32" in saved
    assert "<script" not in saved
