"""What a new user does in a real JupyterLab, with models of their own on virtual GPUs."""

import re

import pytest
from playwright.sync_api import expect

CELLS = [
    "%load_ext devwidget\n%devwidget simulate 2\nimport torch, ipywidgets, devwidget\nfrom torch import nn",
    "%devwidget simulate 2",
    "devwidget.show(nn.Linear(8, 4).cuda(), torch.ones(2, 8))",
    "print('another cell')",
    """class Chatty(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
    def forward(self, tokens):
        for layer in self.layers:
            tokens = layer(tokens)
            __import__("time").sleep(self.pause)
        print("sum", round(float(tokens.detach().sum() * 0)))
        return tokens if not self.asks else input("go on? ")
    pause, asks = 0.0, False
chatty = Chatty().cuda()
batch = torch.ones(3, 8, device="cuda")
tokens = torch.ones(2, 8, device="cuda")
noise = torch.ones(5, 8, device="cuda")
panel = devwidget.show(chatty)
panel""",
    "ipywidgets.VBox([devwidget.show(chatty, tokens)])",
    "%devwidget?",
    "%devwidget simlate 2",
]


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("user.ipynb", CELLS)
    opened = lab.open(browser, "user.ipynb")
    opened.run(0)
    yield opened
    opened.close()


def cell(session, number):
    return session.page.locator(".jp-Cell").nth(number)


def test_virtual_gpus_can_be_asked_for_twice(session):
    session.run(1)
    expect(cell(session, 1)).not_to_contain_text("Error")


def test_a_model_without_a_name_stays_as_long_as_its_panel(session):
    session.run(2)
    session.run(3)
    shown = cell(session, 2).locator(".dw-panel")
    expect(shown.locator(".dw-title")).to_have_text("Linear")
    expect(shown.locator(".dw-banner")).to_be_hidden()
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-finding").first).to_be_visible(timeout=20_000)


def test_the_variable_that_is_called_like_the_argument_of_forward_is_offered(session):
    session.run(4)
    expect(cell(session, 4).get_by_label("batch", exact=True)).to_have_value("tokens")


def test_what_the_step_prints_is_in_the_panel(session):
    shown = cell(session, 4).locator(".dw-panel")
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-printed pre")).to_have_text("sum 0\n", timeout=20_000)


def test_what_was_chosen_is_known_to_python(session):
    shown = cell(session, 4).locator(".dw-panel")
    shown.get_by_role("tab", name="Modules").click()
    shown.locator("[data-path='layers']").click()
    session.page.wait_for_timeout(300)
    assert session.python("panel.selected") == "'layers'"


def test_progress_names_the_module_and_its_share(session):
    session.python("chatty.pause = 0.8", statements=True)
    shown = cell(session, 4).locator(".dw-panel")
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-status")).to_contain_text(re.compile(r"layers\.\d.*\d+ %"), timeout=20_000)
    expect(shown.get_by_role("button", name="Trace batch")).to_be_enabled(timeout=30_000)
    session.python("chatty.pause = 0.0", statements=True)


def test_a_question_of_the_step_is_refused_in_words(session):
    session.python("chatty.asks = True", statements=True)
    shown = cell(session, 4).locator(".dw-panel")
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-failure")).to_contain_text("because no cell runs", timeout=20_000)
    session.python("chatty.asks = False", statements=True)


def test_a_panel_may_stand_in_a_box(session):
    session.run(5)
    expect(cell(session, 5).locator(".dw-panel").first.locator(".dw-title")).to_have_text("Chatty")


def test_a_mistake_in_a_magic_is_one_line_and_its_help_is_there(session):
    session.run(6)
    expect(cell(session, 6)).to_contain_text("%devwidget simulate 2 16GiB")
    session.run(7, must_succeed=False)
    said = cell(session, 7).locator(".jp-OutputArea-output").last
    expect(said).to_contain_text("simulate")
    assert len(said.inner_text().strip().splitlines()) <= 3


def test_the_line_that_a_panel_without_gpus_names_works_without_the_extension(lab, browser):
    told = "import devwidget; devwidget.simulate(2).start()"
    cells = [
        "import torch, devwidget as dw",
        "dw.show(torch.nn.Linear(2, 2))",
        told,
        "print(torch.cuda.device_count(), 'GPUs')",
    ]
    lab.write("no-extension.ipynb", cells)
    opened = lab.open(browser, "no-extension.ipynb")
    opened.run(0)
    opened.run(1)
    expect(opened.page.locator(".dw-panel").last).to_contain_text(f"run {told} and build the model again")
    opened.run(2)
    opened.run(3)
    expect(opened.page.locator(".jp-OutputArea-output").last).to_have_text("2 GPUs")
    opened.close()


def test_what_is_no_link_does_not_look_like_one(session):
    session.run(2)
    tag = cell(session, 2).locator(".dw-virtual")
    look = tag.evaluate("(tag) => [tag.tagName, getComputedStyle(tag).cursor, getComputedStyle(tag).textDecorationLine]")
    assert look[0] == "SPAN"
    assert look[1] in ("auto", "default", "help")
    assert look[2] == "none"
