"""The panel under the widget managers that VS Code and Colab publish: a click finds the fault."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.chromium import Watched
from tests.browser.lab import Lab
from tests.hosts.cells import CELLS, COLAB, VSCODE

HERE = pathlib.Path(__file__).parent
MODULES = HERE / "node_modules"
PAGE = '<!doctype html><meta charset="utf-8"><div id="output"></div><script type="module" src="/host/page.js"></script>'
FILES = {
    "require.js": MODULES / "requirejs" / "require.js",
    "anywidget.js": MODULES / "anywidget" / "dist" / "index.js",
    "vscode.js": MODULES / "@vscode" / "jupyter-ipywidgets8" / "dist" / "ipywidgets.js",
    "colab.js": MODULES / "colab-custom-widget-manager" / "dist" / "manager.dev.js",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`page.mjs` in one file with what it imports."""
    if not (MODULES / "esbuild").exists():
        pytest.skip("no node_modules here: nox -s hosts")
    target = tmp_path_factory.mktemp("page") / "page.js"
    external = ["--external:./vscode.js", "--external:/host/colab.js"]
    command = [MODULES / ".bin" / "esbuild", HERE / "page.mjs", "--bundle", "--format=esm", f"--outfile={target}", *external]
    subprocess.run(command, check=True, capture_output=True)
    return target.read_text(encoding="utf-8")


@pytest.fixture(params=["vscode", "colab"])
def page(request: pytest.FixtureRequest, browser: Browser, lab: Lab, program: str) -> Iterator[Page]:
    host: str = request.param
    if not FILES[f"{host}.js"].exists():
        pytest.skip(f"the widget manager of {host} is not here")
    texts = {"": PAGE, "page.js": program, "cells.json": json.dumps([VSCODE if host == "vscode" else COLAB, *CELLS])}

    def answer(route: Route) -> None:
        name = route.request.url.partition("?")[0].rpartition("/")[2]
        text = texts[name] if name in texts else FILES[name].read_text(encoding="utf-8")
        kind = "text/html" if not name else "application/json" if name.endswith("json") else "text/javascript"
        route.fulfill(body=text, content_type=f"{kind}; charset=utf-8")

    watched = Watched(browser, viewport={"width": 1100, "height": 900})
    watched.context.route(lambda url: "/host/" in url, answer)
    # What Colab fetches from its own CDN: the published module of anywidget, and icons.
    watched.context.route("**/anywidget@*/**", lambda route: route.fulfill(path=FILES["anywidget.js"]))
    watched.context.route("**/font-awesome*/**", lambda route: route.fulfill(body="", content_type="text/css"))
    watched.page.goto(f"http://127.0.0.1:{lab.port}/host/?host={host}&token={lab.token}")
    yield watched.page
    watched.close()


def test_a_click_finds_the_fault_and_its_cell(page: Page) -> None:
    page.get_by_role("button", name="Trace batch").click(timeout=120_000)
    finding = page.locator(".dw-finding[data-kind='wrong-device']")
    expect(finding).to_contain_text("hidden was created on cpu", timeout=60_000)
    expect(finding).to_contain_text("In[3]:7")
