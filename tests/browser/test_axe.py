"""axe-core over every tab; it needs the package axe-playwright-python, which brings axe-core along."""

import pathlib

import pytest

from tests.browser.esm import BarePage
from tests.views.builders import data_parallel, one_step, split_model

axe = pytest.importorskip("axe_playwright_python")
SCRIPT = pathlib.Path(axe.__file__).parent / "axe.min.js"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("trace", [one_step(), data_parallel(3)], ids=["findings", "parallel"])
def test_no_tab_has_a_serious_violation(browser, scheme, trace):
    bare = BarePage(browser, split_model(), trace, color_scheme=scheme)
    bare.page.add_script_tag(path=str(SCRIPT))
    found = []
    for tab in ("Modules", "Findings", "Trace", "Parallel", "Memory"):
        bare.page.get_by_role("tab", name=tab).click()
        violations = bare.page.evaluate(
            "() => axe.run(document.querySelector('.dw-panel')).then((result) => result.violations)"
        )
        found += [
            (tab, each["id"], each["nodes"][0]["html"]) for each in violations if each["impact"] in ("serious", "critical")
        ]
    bare.close()
    assert found == []
