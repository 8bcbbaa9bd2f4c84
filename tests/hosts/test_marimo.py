"""The panel in marimo: a click finds the fault, and places are cells of the notebook."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import Watched
from tests.browser.lab import free_port
from tests.hosts.cells import CELLS

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = "import marimo\n\napp = marimo.App()\n"
DEFINED = ["devwidget, gpus, nn, torch", "Reader,", "panel,"]
NEEDED = ["", "nn, torch", "Reader, devwidget, torch"]


def notebook() -> str:
    """The cells as marimo writes them: a function of what each needs that returns what it defines."""
    parts = zip(CELLS, NEEDED, DEFINED, strict=True)
    cells = (f"@app.cell\ndef _({needs}):\n{textwrap.indent(cell, '    ')}\n    return {made}\n" for cell, needs, made in parts)
    return "\n\n".join([HEAD, *cells])


@pytest.fixture
def page(browser: Browser, tmp_path: pathlib.Path) -> Iterator[Page]:
    pytest.importorskip("marimo")
    (tmp_path / "notebook.py").write_text(notebook(), encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "marimo", "edit", "notebook.py", "--headless", "--no-token", f"--port={port}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with (tmp_path / "log").open("wb") as log:
        options = {"cwd": tmp_path, "env": environment, "stdout": log, "stderr": log, "start_new_session": True}
        server = subprocess.Popen([*command, "--skip-update-check"], **options)  # type: ignore[call-overload]
    watched = Watched(browser, viewport={"width": 1400, "height": 1000})
    try:
        wait_for(f"http://127.0.0.1:{port}/health")
        watched.page.goto(f"http://127.0.0.1:{port}/")
        yield watched.page
        assert watched.errors == []
    finally:
        watched.context.close()
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)


def wait_for(address: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.3)
    raise AssertionError("marimo did not start")


def test_a_click_finds_the_fault_and_its_cell(page: Page) -> None:
    page.locator(".cm-editor").nth(2).wait_for(timeout=120_000)
    page.get_by_test_id("run-button").last.click()
    page.get_by_role("button", name="Trace batch").click(timeout=120_000)
    finding = page.locator(".dw-finding[data-kind='wrong-device']")
    expect(finding).to_contain_text("hidden was created on cpu", timeout=60_000)
    expect(finding).to_contain_text("cell[2]:7")
