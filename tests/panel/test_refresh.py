"""Panels follow the cells of a notebook."""

import time

import pytest

from devwidget.panel import refresh
from tests.browser.handmade_panel import open_panel
from tests.cells import ipython


@pytest.fixture
def shell():
    with ipython() as shell:
        yield shell
        refresh.stop_watching(shell)


def test_a_shown_panel_looks_again_after_each_cell(shell):
    panel, fake = open_panel()
    fake.gone = True
    shell.run_cell("1")
    assert panel.view.gone is False  # nobody looks at it
    panel.view._view_count = 1
    shell.run_cell("1")
    assert panel.view.gone is True
    panel.close()


def test_memory_is_watched_while_a_long_cell_runs(shell, monkeypatch):
    monkeypatch.setattr(refresh, "SAMPLE_SECONDS", 0.05)
    panel, _ = open_panel()
    panel.view._view_count = 1
    shell.user_ns["wait"] = time.sleep
    shell.run_cell("wait(0.3)")
    assert panel.live.memory["gpus"]["data"]
    panel.close()


def test_callbacks_are_registered_once_and_taken_off(shell):
    panels = [open_panel()[0] for _ in range(3)]
    assert shell.events.callbacks["post_run_cell"].count(refresh._after_cell) == 1
    refresh.stop_watching(shell)
    assert refresh._after_cell not in shell.events.callbacks["post_run_cell"]
    for panel in panels:
        panel.close()
