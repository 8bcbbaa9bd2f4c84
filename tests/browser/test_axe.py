"""axe-core over every tab."""

import pytest

from tests.browser.axe import violations
from tests.browser.esm import BarePage
from tests.views.builders import data_parallel, one_step, split_model


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("trace", [one_step(), data_parallel(3)], ids=["findings", "parallel"])
def test_no_tab_has_a_serious_violation(browser, scheme, trace):
    bare = BarePage(browser, split_model(), trace, color_scheme=scheme)
    found = []
    for tab in ("Modules", "Findings", "Trace", "Devices", "Memory"):
        bare.page.get_by_role("tab", name=tab).click()
        found += [(tab, *each) for each in violations(bare.page)]
    bare.close()
    assert found == []
