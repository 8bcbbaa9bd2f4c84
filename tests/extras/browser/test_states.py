"""The states of the panel that extras add, as `tests/browser/test_states.py` looks at those of the core."""

import pytest

from devwidget.extras.plan.page.proposed import proposed_content
from devwidget.extras.watch.page import watched_content
from devwidget.views.placement import tabulate_snapshot
from tests.browser.test_states import check_state, opened
from tests.extras.browser.test_watch import watched
from tests.extras.plan.test_proposed_map import GPU0, GPU1, layout
from tests.views.builders import one_step, split_model

pytestmark = pytest.mark.slow


def test_screenshots_of_a_proposed_layout(browser):
    proposed = proposed_content(layout(GPU0, GPU0, GPU1), tabulate_snapshot(split_model()))
    check_state(browser, "proposed", split_model(), one_step(), opened("Devices"), proposed=proposed)


def test_screenshots_of_a_watched_run(browser):
    check_state(browser, "watched", split_model(), one_step(), opened("Watch"), watched=watched_content(watched()))
