"""A real JupyterLab (or Notebook 7) with a headless browser: start it, open a notebook, run cells, look at the page.

with Lab(tmp_path) as lab:                       # or the session fixture `lab`
    lab.write("demo.ipynb", ["1 + 1"])           # a notebook of code cells in the server's folder
    session = lab.open(browser, "demo.ipynb")    # LabPage; theme="JupyterLab Dark", width=700 if wanted
    session.run_all()                            # or run(n); raises if a cell failed
    session.page.get_by_role("button", name="Trace batch").click()
    session.python("value + 1")                  # evaluated in the kernel, returned by repr
    session.shot("after-trace")                  # artifacts/after-trace.png
    session.close()                              # fails on console errors, and if anything was asked of the network
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

import nbformat
from playwright.sync_api import Browser, BrowserContext

from tests.browser.chromium import Watched

ROOT = pathlib.Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts"
DARK = "JupyterLab Dark"
LIGHT = "JupyterLab Light"
_START_SECONDS = 90


class Lab:
    """One server process with configuration, settings and workspaces of its own.

    Args:
        folder: where all of it is kept; notebooks lie in `folder/notebooks`.
        app: `lab` or `notebook`.
        theme: JupyterLab's name of the theme.
    """

    def __init__(self, folder: pathlib.Path, *, app: str = "lab", theme: str = LIGHT) -> None:
        self.folder, self.app, self.theme = folder, app, theme
        self.notebooks = folder / "notebooks"
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._context: BrowserContext | None = None

    def __enter__(self) -> Lab:
        self.notebooks.mkdir(parents=True, exist_ok=True)
        (self.folder / "labconfig").mkdir(exist_ok=True)
        (self.folder / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(self._settings()))
        self._process = subprocess.Popen(
            self._command(),
            cwd=self.notebooks,
            env=self._environment(),
            stdout=(self.folder / "server.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that kernels end with the server
        )
        self._wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._context is not None:
            self._context.close()
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=5)

    def write(self, name: str, cells: list[str]) -> pathlib.Path:
        """A notebook with these code cells in the server's folder."""
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = self.notebooks / name
        nbformat.write(notebook, path)
        return path

    def copy(self, source: pathlib.Path) -> str:
        """Put a copy of a notebook of the repository into the server's folder; its name there."""
        shutil.copy(source, self.notebooks / source.name)
        return source.name

    def open(self, browser: Browser, name: str, *, width: int = 1400, height: int = 1000, **options: Any) -> LabPage:
        """Show a notebook in a page of its own, its kernel idle; with options also in a context of its own."""
        self._context = self._context or browser.new_context()
        watched = Watched(browser, None if options else self._context, **options)
        watched.page.set_viewport_size({"width": width, "height": height})
        place = f"lab/tree/{name}?reset&" if self.app == "lab" else f"notebooks/{name}?"
        watched.page.goto(f"http://127.0.0.1:{self.port}/{place}token={self.token}", wait_until="domcontentloaded")
        session = LabPage(watched)
        session.wait_ready()
        return session

    def _command(self) -> list[str]:
        application = "LabApp" if self.app == "lab" else "JupyterNotebookApp"
        return [
            sys.executable, "-m", "jupyterlab" if self.app == "lab" else "notebook", "--no-browser",
            "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={self.notebooks}", "--allow-root", f"--{application}.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        environment = os.environ | {name: str(self.folder / place) for name, place in own.items()}
        environment |= {"JUPYTER_TOKEN": self.token, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
        environment["CUDA_VISIBLE_DEVICES"] = ""  # what notebooks show is stored as it is on a machine without a GPU
        for place in own.values():
            (self.folder / place).mkdir(exist_ok=True)
        settings = self.folder / "config" / "labconfig"
        settings.mkdir(exist_ok=True)
        shutil.copy(self.folder / "labconfig" / "default_setting_overrides.json", settings)
        server = {"MCPExtensionApp": {"mcp_port": 0}}  # jupyter-server-mcp has one port for all servers of a machine
        (self.folder / "config" / "jupyter_server_config.json").write_text(json.dumps(server))
        return environment

    def _settings(self) -> dict[str, Any]:
        if self.app != "lab":
            return {}  # Notebook 7 complains about settings of parts that it does not have
        return {
            "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
            "@jupyterlab/apputils-extension:themes": {"theme": self.theme, "adaptive-theme": False},
            "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
            "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
        }

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        url = f"http://127.0.0.1:{self.port}/api/status?token={self.token}"
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
                return
            time.sleep(0.2)
        raise RuntimeError(f"the Jupyter server did not start:\n{(self.folder / 'server.log').read_text()[-4000:]}")


class LabPage:
    """A notebook in the browser.

    Attributes:
        page: playwright's page, for everything that is not here.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched, self.page = watched, watched.page

    def wait_ready(self, seconds: float = 60) -> None:
        """Until the notebook is shown and its kernel is idle."""
        self.page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=seconds * 1000,
        )
        self.page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=seconds * 1000)

    def run(self, cell: int, *, seconds: float = 120, must_succeed: bool = True) -> None:
        """Run one code cell, numbered from 0 among all cells, and wait for its end."""
        self.page.set_default_timeout(seconds * 1000)
        outputs = self.page.evaluate(_RUN_CELL, cell)
        self.page.set_default_timeout(30_000)
        failed = [output for output in outputs if output["output_type"] == "error"]
        if failed and must_succeed:
            raise AssertionError(f"cell {cell} raised {failed[0]['ename']}: {failed[0]['evalue']}")

    def run_all(self, *, seconds: float = 240) -> None:
        """Run all code cells from top to bottom, stopping at the first that fails."""
        for cell, kind in enumerate(self.page.evaluate(_CELL_KINDS)):
            if kind == "code":
                self.run(cell, seconds=seconds)

    def notebook(self) -> Any:
        """The notebook as it is now, with what its cells show."""
        return nbformat.from_dict(self.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.model.toJSON()"))

    def start(self, cell: int) -> None:
        """Run one cell without waiting for its end."""
        self.page.evaluate(f"(cell) => {{ void ({_RUN_CELL})(cell) }}", cell)

    def python(self, code: str, *, statements: bool = False) -> str:
        """The `repr` of an expression in the kernel; or the printed output of statements."""
        source = code if statements else f"print(repr({code}))"
        reply = self.page.evaluate(_EXECUTE, source)
        if reply["error"]:
            raise AssertionError(f"the kernel answered {reply['error']}")
        return str(reply["text"]).strip()

    def restart_kernel(self) -> None:
        """Restart without asking."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")

    def use_theme(self, name: str) -> None:
        """Switch JupyterLab's theme: `LIGHT` or `DARK`."""
        self.page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        light = "true" if name == LIGHT else "false"
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{light}'")

    def hide_sidebar(self) -> None:
        """More room for the notebook."""
        self.page.evaluate("() => window.jupyterapp.shell.collapseLeft?.()")

    def shot(self, name: str, selector: str = "") -> pathlib.Path:
        """Save a picture as `artifacts/NAME.png`, of one element if a selector is given."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        target = self.page.locator(selector).first if selector else self.page
        target.screenshot(path=str(path))
        return path

    def close(self) -> None:
        """Shut the kernel down and close the page; fails if anything went wrong in it before."""
        errors = list(self.watched.errors)
        with contextlib.suppress(Exception):  # the page may be gone already
            self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.watched.errors[:] = errors  # a page complains when its kernel goes
        self.watched.close()


_CELL_KINDS = "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map((cell) => cell.type)"
_RUN_CELL = """async (cell) => {
  const app = window.jupyterapp;
  const notebook = app.shell.currentWidget.content;
  notebook.activeCellIndex = cell;
  notebook.deselectAll();
  await app.commands.execute('notebook:run-cell');
  return notebook.model.cells.get(cell).outputs?.toJSON() ?? [];
}"""
_EXECUTE = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code, store_history: false });
  let text = '', error = '';
  future.onIOPub = (message) => {
    if (message.header.msg_type === 'stream') text += message.content.text;
    if (message.header.msg_type === 'error') error = `${message.content.ename}: ${message.content.evalue}`;
  };
  await future.done;
  return { text, error };
}"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
