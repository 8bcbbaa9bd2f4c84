"""A saved trace in JupyterLite: the site is built with our wheel; a notebook in it prints the record and makes a page of it."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
import torch
from playwright.sync_api import Browser, expect

import devwidget
from tests.browser.chromium import Watched
from tests.browser.lab import LabPage

HERE = pathlib.Path(__file__).parent
PYODIDE = HERE / "node_modules" / "pyodide"
WHEELS = HERE / "dist"
"""Our wheel, and those that Pyodide has beside the interpreter, which the site would take from its CDN."""
KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"
CELLS = [
    "%pip install jinja2\n%pip install --no-deps devwidget",
    'import devwidget\ntrace = devwidget.load("trace.json")\nprint(trace)',
    "import html\nfrom IPython.display import HTML\n"
    'HTML(f\'<div><iframe srcdoc="{html.escape(trace.to_html())}" width="100%" height="700"></iframe></div>\')',
]


@pytest.fixture(scope="module")
def trace() -> devwidget.Trace:
    with devwidget.simulate(gpus=1):
        return devwidget.trace(torch.nn.Linear(3, 3).to("cuda:0"), torch.ones(2, 3))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, trace: devwidget.Trace) -> Iterator[str]:
    """The address of a site that holds the record and the notebook."""
    pytest.importorskip("jupyterlite_pyodide_kernel")
    if not PYODIDE.exists() or not list(WHEELS.glob("devwidget-*.whl")):
        pytest.skip("no node_modules or no wheels here: nox -s hosts")
    folder = tmp_path_factory.mktemp("lite")
    shutil.copytree(WHEELS, folder / "pypi", ignore=lambda _, names: [each for each in names if not each.endswith(".whl")])
    write_pyodide(folder / "static" / "pyodide")
    (folder / "files").mkdir()
    trace.save(folder / "files" / "trace.json")
    nbformat.write(notebook(), folder / "files" / "records.ipynb")
    settings = {"exposeAppInBrowser": True, "litePluginSettings": {KERNEL: {"disablePyPIFallback": True}}}
    (folder / "jupyter-lite.json").write_text(json.dumps({"jupyter-lite-schema-version": 0, "jupyter-config-data": settings}))
    command = [sys.executable, "-m", "jupyterlite_core", "build", "--no-unused-shared-packages", "--no-sourcemaps"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=folder / "_output")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def write_pyodide(folder: pathlib.Path) -> None:
    """Pyodide as npm has it, with micropip; its list names no other package, so that all else is looked for in the site."""
    shutil.copytree(PYODIDE, folder, ignore=shutil.ignore_patterns("*.map", "*.ts", "*.html"))
    lock = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))
    (wheel,) = WHEELS.glob("micropip-*.whl")
    shutil.copy(wheel, folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    file = {"version": wheel.name.split("-")[1], "file_name": wheel.name, "sha256": digest}
    lock["packages"] = {"micropip": lock["packages"]["micropip"] | file}
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")


def notebook() -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in CELLS])
    made.metadata["kernelspec"] = {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}
    return made


def test_a_saved_trace_is_read_printed_and_made_a_page(browser: Browser, site: str, trace: devwidget.Trace) -> None:
    watched = Watched(browser, viewport={"width": 1200, "height": 1000})
    watched.page.goto(f"{site}/lab/index.html?path=records.ipynb")
    session = LabPage(watched)
    session.wait_ready(180)
    session.run_all()
    (printed,) = session.notebook().cells[1].outputs
    assert printed.text.strip() == str(trace).strip()
    finding = session.page.frame_locator("iframe[srcdoc]").locator(".dw-finding[data-kind='wrong-device']")
    expect(finding).to_contain_text("linear got tensors on cpu and")
    session.shot("jupyterlite")
    session.close()
