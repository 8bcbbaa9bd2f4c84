"""The second notebook in a real JupyterLab: the gather point that overflows, and the cure, as the page draws them."""

import json
import pathlib

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ARTIFACTS, DARK, LIGHT

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "02-dataparallel.ipynb"


@pytest.fixture(scope="module")
def session(lab, browser):
    opened = lab.open(browser, lab.copy(NOTEBOOK))
    opened.run_all()
    yield opened
    opened.close()


def panel(session, text):
    """The tab Devices of the panel below the cell that contains a text."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    number = next(i for i, cell in enumerate(cells) if text in "".join(cell["source"]))
    found = session.page.locator(".jp-Cell").nth(number).locator(".dw-panel")
    found.scroll_into_view_if_needed()
    found.get_by_role("tab", name="Devices").click()
    expect(found.locator(".dw-drawn svg")).to_be_visible(timeout=20_000)
    return found


def words(shown, what):
    """What the parts of a kind of the picture say of themselves."""
    return shown.locator(f"[data-what={what}] > title").all_text_contents()


def test_the_gather_point_holds_all_scores_and_the_step_ran_out_of_memory(session):
    shown = panel(session, "panel = devwidget.show(parallel")
    assert "64.0 MiB gathered on cuda:0" in words(shown, "outputs")[0]
    for gpu, text in enumerate(words(shown, "replica")):
        assert f"replica {gpu} on cuda:{gpu}" in text
        assert "8 samples, out 16.0 MiB" in text
    expect(shown.locator(".dw-words").first).to_contain_text("The step ended with OutOfMemoryError")
    expect(shown.locator(".dw-advice[data-about='loss']")).to_contain_text("4 numbers are gathered on cuda:0 instead of 64.0")


def test_with_the_loss_inside_four_numbers_are_gathered(session):
    shown = panel(session, "fixed_panel = devwidget.show")
    assert "16 B gathered on cuda:0" in words(shown, "outputs")[0]
    assert "12.6 MiB copied to cuda:0" in words(shown, "gradients")[0]
    assert shown.locator(".dw-advice[data-about='loss']").count() == 0


def test_the_table_says_what_the_allocator_says(session):
    shown = panel(session, "few_panel = devwidget.show")  # the last one: peaks are forgotten before each
    said = shown.locator(".dw-replica td:nth-child(8)").all_text_contents()
    assert len(said) == 3
    format_bytes = "__import__('devwidget.report.style.units').report.style.units.format_bytes"
    assert session.python(f"[{format_bytes}(torch.cuda.max_memory_allocated(i)) for i in range(3)]") == str(said)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("width", [700, 1600])
def test_pictures_are_kept(session, theme, width):
    session.use_theme(theme)
    session.resize(width, 1300)
    session.hide_sidebar()
    for text, name in (("panel = devwidget.show(parallel", "full"), ("fixed_panel = devwidget.show", "cured")):
        path = ARTIFACTS / f"dataparallel-{name}-{theme.split()[1].lower()}-{width}.png"
        shown = panel(session, text)
        session.page.wait_for_timeout(500)
        shown.screenshot(path=path)
        assert path.stat().st_size > 10_000
