"""An assistant asks a real Jupyter server over MCP: the model is in a kernel, and stays as it was."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient

ROOT = Path(__file__).parents[3]
START_SECONDS = 120
MODEL = """
import torch, devwidget
from torch import nn
devwidget.simulate(2).start()
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        mask = torch.linspace(0, 1, 4)
        return self.layer(x) * mask
model = Masked().to("cuda:0")
batch = torch.ones(2, 4, device="cuda:0")
"""
RIGHT = "-        mask = torch.linspace(0, 1, 4)\n+        mask = torch.linspace(0, 1, 4, device=x.device)\n"
LITERAL = "-        mask = torch.linspace(0, 1, 4)\n+        mask = torch.linspace(0, 1, 4, device='cuda:0')\n"
NAMES = "sorted(name for name in dir() if not name.startswith('_')), len(In), [p.device for p in model.parameters()]"

CLIENT = """
import asyncio, json, sys
from fastmcp import Client
async def call(url, calls):
    async with Client(url) as client:
        names = " ".join(sorted(tool.name for tool in await client.list_tools()))
        answers = [await client.call_tool(name, arguments) for name, arguments in calls]
        return [names, *(answer.content[0].text for answer in answers)]
print(json.dumps(asyncio.run(call(sys.argv[1], json.loads(sys.argv[2])))))
"""
"""In a process of its own, as an assistant is."""

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]


class Server:
    """A Jupyter server with the tools of this environment, and one notebook whose kernel runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._token = folder, secrets.token_hex(16)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "JUPYTER_TOKEN": self._token, "OMP_NUM_THREADS": "1"}
        for place in ("CONFIG", "DATA", "RUNTIME"):
            environment[f"JUPYTER_{place}_DIR"] = str(folder / place)
        environment["IPYTHONDIR"] = str(folder / "ipython")
        command = [
            sys.executable,
            "-m",
            "jupyter_server",
            "--allow-root",
            f"--ServerApp.port={_free_port()}",
            "--MCPExtensionApp.mcp_port=0",
        ]
        self._log = folder / "server.log"
        with self._log.open("wb") as log:
            options: dict[str, Any] = {"cwd": folder, "env": environment, "stdout": log, "stderr": log}
            self._process = subprocess.Popen(command, start_new_session=True, **options)

    def start_notebook(self, name: str) -> BlockingKernelClient:
        """Start the kernel of a notebook, and connect to it as its page would."""
        self._wait_for("jpserver-mcp-*.json")  # written once the server listens
        server = json.loads(self._wait_for("jpserver-[0-9]*.json").read_text())
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{server['url']}api/sessions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=START_SECONDS) as reply:
            kernel = json.load(reply)["kernel"]["id"]
        client = BlockingKernelClient(connection_file=str(self._wait_for(f"kernel-{kernel}.json")))
        client.load_connection_file()
        client.start_channels()
        _wait_until_heard(client)
        return client

    def call(self, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        """Call tools one after the other with a client of MCP; its first line lists the tools."""
        url = json.loads(self._wait_for("jpserver-mcp-*.json").read_text())["url"]
        client = [sys.executable, "-c", CLIENT, url, json.dumps(calls)]
        return json.loads(subprocess.run(client, capture_output=True, text=True, check=True).stdout)

    def stop(self) -> None:
        """End the server and its kernels."""
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=5)

    def _wait_for(self, pattern: str) -> Path:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = [each for each in self._folder.glob(f"RUNTIME/{pattern}") if each.stat().st_size]
            if found:
                return found[0]
            time.sleep(0.1)
        raise RuntimeError(f"no {pattern}:\n{self._log.read_text()[-4000:]}")


def _wait_until_heard(client: BlockingKernelClient) -> None:
    """Until the kernel answers and its outputs arrive. `wait_for_ready` gives up at the first late heartbeat."""
    for _ in range(START_SECONDS // 5):
        with contextlib.suppress(TimeoutError):
            client.execute_interactive("", silent=True, timeout=5)
            return
    raise RuntimeError("the kernel does not answer")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run(client: BlockingKernelClient, code: str, **options: Any) -> str:
    """Run a cell; its text output."""
    shown = []

    def keep(message: dict[str, Any]) -> None:
        content = message["content"]
        shown.append(str(content.get("text", content.get("evalue", ""))))
        if message["msg_type"] == "execute_result":
            shown.append(content["data"]["text/plain"])

    client.execute_interactive(code, output_hook=keep, timeout=START_SECONDS, **options)
    return "".join(shown)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def kernel(server: Server) -> Iterator[BlockingKernelClient]:
    client = server.start_notebook("train.ipynb")
    assert run(client, MODEL) == ""
    yield client
    client.stop_channels()


def test_the_tools_explain_trace_and_try(server: Server, kernel: BlockingKernelClient) -> None:
    run(kernel, "model(batch).sum().backward()")
    before = run(kernel, NAMES, store_history=False)
    step = {"model": "model", "batch": "batch", "loss_fn": "torch.sum"}
    names, explained, traced, right, literal, wrong, planned = server.call(
        ("explain_last_error", {}),
        ("trace_model", step),
        ("try_edit", {"diff": RIGHT, **step}),
        ("try_edit", {"diff": LITERAL, **step}),
        ("try_edit", {"diff": "-  mask = 1\n+  mask = 2\n", **step, "notebook": "train.ipynb"}),
        (
            "will_it_fit",
            {"model": "nn.Linear(4, 4)", "batch": "torch.ones(2, 4)", "card": "RTX 4090", "optimizer": "torch.optim.AdamW"},
        ),
    )
    assert {"explain_last_error", "trace_model", "try_edit", "will_it_fit"} <= set(names.split())
    assert "mask = torch.linspace" in explained
    assert "(verified)" in traced
    assert right.startswith("The edit works")
    assert "on cuda:1 the step fails" in literal
    assert "no loaded file or cell has the line `mask = 1`" in wrong
    assert "RTX 4090" in planned
    after = run(kernel, NAMES, store_history=False)
    assert after == before


def test_a_wrong_name_is_answered_in_words(server: Server, kernel: BlockingKernelClient) -> None:
    step = {"model": "modle", "batch": "batch"}
    _, traced, elsewhere = server.call(("trace_model", step), ("explain_last_error", {"notebook": "other.ipynb"}))
    assert "modle" in traced
    assert "train.ipynb" in elsewhere
