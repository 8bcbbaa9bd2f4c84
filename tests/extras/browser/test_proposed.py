"""A layout in the panel of the model for which it was proposed."""

from playwright.sync_api import expect

from devwidget.extras.plan.page.proposed import proposed_content
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage
from tests.extras.plan.test_proposed_map import layout
from tests.views.builders import GPU0, GPU1, split_model


def test_a_layout_is_drawn_beside_the_model_as_it_is(browser):
    bare = BarePage(browser, split_model())
    bare.page.get_by_role("tab", name="Devices").click()
    bare.update("panel", "proposed", proposed_content(layout(GPU0, GPU0, GPU1), tabulate_snapshot(split_model())))
    parts = bare.page.get_by_role("tabpanel", name="Devices").locator(".dw-two > div")
    expect(parts.first).to_contain_text("Current placement")
    proposed = parts.filter(has_text="Where it would go")
    expect(proposed).to_contain_text("Layout: Net over 2 GPUs: fits")
    expect(proposed.locator("[data-mark=column]")).to_have_count(2)
    bare.close()
