"""The first notebook as a new user meets it: opened in a real JupyterLab, run, traced by a click, read off the page."""

import json
import pathlib

import pytest
from playwright.sync_api import expect

from tests.test_notebooks import check_quiet

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "01-first-look.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def cell_with(text):
    """Number of the first cell that contains a text."""
    return next(at for at, cell in enumerate(CELLS) if text in "".join(cell["source"]))


SHOWS = cell_with("panel = devwidget.show(model")
CODE = [at for at, cell in enumerate(CELLS) if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def session(lab, browser):
    """Run down to the panel, as somebody who reads does: the click comes before the answer."""
    opened = lab.open(browser, lab.copy(NOTEBOOK))
    expect(opened.page.locator(".dw-saved").first).to_be_visible()
    expect(opened.page.get_by_text("Error displaying widget")).to_have_count(0)
    for number in CODE:
        if number <= SHOWS:
            opened.run(number)
    yield opened
    opened.close()


def panel(session, cell):
    """The panel below a cell."""
    found = session.page.locator(".jp-Cell").nth(cell).locator(".dw-panel")
    found.scroll_into_view_if_needed()
    return found


def test_modules_have_their_devices_and_gpus_the_allocators_bytes(session):
    shown = panel(session, SHOWS)
    rows = {
        row.get_attribute("data-path"): row.locator(".dw-chip").all_inner_texts()
        for row in shown.locator(".dw-body [role=row]").all()
    }
    assert (rows["lower"], rows["upper"], rows[""]) == (["cuda:0"], ["cuda:1"], ["cuda:0", "cuda:1"])
    expect(shown.locator(".dw-memory .point path").first).to_be_attached()
    facts = session.python("[(str(m.device), m.total, m.parameters) for m in panel.snapshot.memory if m.total]")
    for device in ("cuda:0", "cuda:1"):
        size = f"sum(-(-p.nbytes // 512) * 512 for p in model.parameters() if str(p.device) == '{device}')"
        assert f"('{device}', 16777216, {session.python(size)})" in facts
        expect(shown.locator(".dw-memory")).to_contain_text(device)


def test_trace_batch_marks_the_module_and_shows_line_and_fix(session):
    shown = panel(session, SHOWS)
    shown.get_by_role("button", name="Trace batch").click()
    finding = shown.locator(".dw-finding")
    expect(finding).to_have_count(1, timeout=60_000)
    expect(finding).to_have_attribute("data-kind", "wrong-device")
    expect(finding).to_contain_text("places = torch.arange(rows.shape[1], device=rows.device)")
    expect(finding).to_contain_text("x = self.lower(rows + self.place(places))")
    for peak in shown.locator(".dw-meter-peak").all():  # no sliver
        assert peak.bounding_box()["width"] > 0.3 * peak.locator("..").bounding_box()["width"]
    shown.get_by_role("tab", name="Modules").click()
    expect(shown.locator("[role=row][data-path='place']")).to_have_attribute("data-severity", "error")
    expect(shown.locator("[role=row][data-path='look']")).not_to_have_attribute("data-severity", "error")
    assert session.python("all(p.grad is None for p in model.parameters()) and not optimizer.state") == "True"


def test_the_rest_shows_the_answer_the_proof_and_the_mended_model(session):
    for number in CODE:
        if number > SHOWS:
            session.run(number)
    check_quiet(session.notebook())
    cells = session.page.locator(".jp-Cell")
    expect(cells.nth(cell_with("print(panel.findings[0]"))).to_contain_text("error[wrong-device]")
    proof = cells.nth(cell_with("devwidget.compare("))
    expect(proof).to_contain_text("✓ nothing found, 16 checks")
    expect(proof).to_contain_text("1 finding fixed, 0 new, 0 left; 1 transfer fewer")
    shown = panel(session, cell_with("fixed_panel = devwidget.show"))
    assert shown.locator(".dw-finding").count() == 0
    shown.get_by_role("tab", name="Devices").click()
    expect(shown.locator(".dw-drawn [data-mark='way'][data-kind='copy']").first).to_be_visible()
    assert session.python("[(str(c.source), str(c.target)) for c in fixed_panel.trace.crossings]") == "[('cuda:0', 'cuda:1')]"


def test_the_model_is_freed_while_its_panel_is_displayed(session):
    code = "import gc, weakref; gone = weakref.ref(model); del model; gc.collect(); print(gone() is None)"
    assert session.python(code, statements=True) == "True"
    expect(panel(session, SHOWS).locator(".dw-banner")).to_contain_text("The model was deleted")
