"""The first notebook as a new user meets it: run in a real JupyterLab, traced by a click, read off the page."""

import json
import pathlib

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ARTIFACTS, DARK, LIGHT

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "01-first-look.ipynb"


def cell_with(text):
    """Number of the first cell that contains a text."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return next(i for i, cell in enumerate(cells) if text in "".join(cell["source"]))


SHOWS = "panel = devwidget.show(model"


def code_cells():
    """Numbers of the code cells, and of the one that shows the faulty model."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return [i for i, cell in enumerate(cells) if cell["cell_type"] == "code"], cell_with(SHOWS)


@pytest.fixture(scope="module")
def session(lab, browser):
    """Run down to the panel, as somebody who reads does: the click comes before the answer."""
    opened = lab.open(browser, lab.copy(NOTEBOOK))
    numbers, shows = code_cells()
    for number in filter(lambda number: number <= shows, numbers):
        opened.run(number)
    yield opened
    opened.close()


def panel(session, text):
    """The panel below the cell that contains a text."""
    found = session.page.locator(".jp-Cell").nth(cell_with(text)).locator(".dw-panel")
    found.scroll_into_view_if_needed()
    return found


def devices_by_row(shown):
    """What the table says: path -> text of its device chips."""
    return {
        row.get_attribute("data-path"): row.locator(".dw-chip").all_inner_texts()
        for row in shown.locator(".dw-body [role=row]").all()
    }


def test_every_module_has_a_row_with_its_device(session):
    rows = devices_by_row(panel(session, SHOWS))
    paths = set(json.loads(session.python("__import__('json').dumps([n for n, _ in model.named_modules()])").strip("'")))
    assert set(rows) <= paths  # equal blocks are one row, and those below are painted once they come in sight
    assert rows["lower"] == rows["look"] == ["cuda:0"]
    assert rows["upper"] == ["cuda:1"]
    assert rows[""] == ["cuda:0", "cuda:1"]


def test_each_gpu_has_a_bar_with_the_allocators_bytes(session):
    shown = panel(session, SHOWS).locator(".dw-memory")
    expect(shown.locator(".point path").first).to_be_attached(timeout=20_000)
    facts = session.python("[(str(m.device), m.total, m.parameters) for m in panel.snapshot.memory if m.total]")
    assert facts.count("16777216") == 2
    for device in ("cuda:0", "cuda:1"):
        size = f"sum(-(-p.nbytes // 512) * 512 for p in model.parameters() if str(p.device) == '{device}')"
        assert f"('{device}', 16777216, {session.python(size)})" in facts
        expect(shown).to_contain_text(device)


def test_trace_batch_marks_the_module_and_shows_line_and_fix(session):
    shown = panel(session, SHOWS)
    shown.get_by_role("button", name="Trace batch").click()
    finding = shown.locator(".dw-finding")
    expect(finding).to_have_count(1, timeout=30_000)
    expect(finding).to_have_attribute("data-kind", "wrong-device")
    expect(finding).to_contain_text("places = torch.arange(rows.shape[1], device=rows.device)")
    expect(finding).to_contain_text("x = self.lower(rows + self.place(places))")
    for peak in shown.locator(".dw-meter-peak").all():  # no sliver
        assert peak.bounding_box()["width"] > 0.3 * peak.locator("..").bounding_box()["width"]
    shown.get_by_role("tab", name="Modules").click()
    expect(shown.locator("[role=row][data-path='place']")).to_have_attribute("data-severity", "error")
    expect(shown.locator("[role=row][data-path='look']")).not_to_have_attribute("data-severity", "error")


def test_the_model_was_left_as_it_was(session):
    assert session.python("all(p.grad is None for p in model.parameters()) and not optimizer.state") == "True"


def test_the_rest_shows_the_answer_and_the_proof(session):
    numbers, shows = code_cells()
    for number in filter(lambda number: number > shows, numbers):
        session.run(number)
    cells = session.page.locator(".jp-Cell")
    expect(cells.nth(cell_with("print(panel.findings[0]"))).to_contain_text("error[wrong-device]")
    proof = cells.nth(cell_with("devwidget.compare("))
    expect(proof).to_contain_text("✓ nothing found, 17 checks")
    expect(proof).to_contain_text("1 finding fixed, 0 new, 0 left; 1 hop fewer")


def test_the_mended_model_shows_its_hop_and_no_finding(session):
    shown = panel(session, "fixed_panel = devwidget.show")
    assert shown.locator(".dw-finding").count() == 0
    shown.get_by_role("tab", name="Devices").click()
    expect(shown.locator(".dw-drawn [data-mark='way'][data-kind='copy']").first).to_be_visible()
    assert session.python("[(str(c.source), str(c.target)) for c in fixed_panel.trace.crossings]") == "[('cuda:0', 'cuda:1')]"


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_pictures_are_kept(session, theme):
    if session.python("'fixed_panel' in globals()") == "False":  # when this test runs alone
        numbers, shows = code_cells()
        panel(session, SHOWS).get_by_role("button", name="Trace batch").click()
        expect(panel(session, SHOWS).locator(".dw-finding").first).to_be_visible(timeout=60_000)
        for number in filter(lambda number: number > shows, numbers):
            session.run(number)
    session.use_theme(theme)
    session.hide_sidebar()
    name = theme.split()[1].lower()
    for text, which in (
        (SHOWS, "faulty"),
        ("fixed_panel = ", "split"),
    ):
        shown = panel(session, text)
        for tab in ("Modules", "Findings", "Trace", "Memory"):
            shown.get_by_role("tab", name=tab).click()
            shown.screenshot(path=ARTIFACTS / f"first-look-{which}-{tab.lower()}-{name}.png")
    assert (ARTIFACTS / f"first-look-split-trace-{name}.png").stat().st_size > 10_000


def test_the_model_is_freed_while_its_panel_is_displayed(session):
    code = "import gc, weakref; gone = weakref.ref(model); del model; gc.collect(); print(gone() is None)"
    assert session.python(code, statements=True) == "True"
    shown = panel(session, SHOWS)
    expect(shown.locator(".dw-banner")).to_contain_text("The model was deleted", timeout=20_000)
