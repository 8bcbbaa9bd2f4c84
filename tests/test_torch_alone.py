"""With torch and nothing else of ours: what works, and what says which package it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = "IPython anywidget cloudpickle ipywidgets jupyterlab pandas plotly traitlets".split()
HIDE = f"""
import sys

class Hiding:
    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN!r}:
            return None
        return next(filter(None, (each.find_spec(name, path, target) for each in self.finders)), None)

sys.meta_path[:] = [Hiding(sys.meta_path[:])]
"""
"""As if these packages were not installed."""
MODEL = """
import torch
from torch import nn
import devwidget

class Adder(nn.Module):
    def forward(self, x):
        table = torch.zeros(2)
        return x + table
"""
ASKED = {
    "trace.to_frame()": "a data frame needs the package `pandas`",
    "devwidget.show(model)": "a panel needs the package `ipywidgets`",
    "devwidget.DeviceWidget": "a panel needs the package `ipywidgets`",
    "devwidget.plan(model, torch.ones(2), gpus=1, memory='1GiB')": "a plan needs the package `cloudpickle`",
}
"""What is asked for, and the answer."""


def run(program: str, folder: Path) -> str:
    file = folder / "program.py"
    file.write_text(HIDE + MODEL + program, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "ignore", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("virtual_gpus")
def test_a_step_is_traced_checked_and_explained(tmp_path: Path) -> None:
    text = run(
        """
model, batch = nn.Linear(2, 2), torch.ones(1, 2)
print(devwidget.snapshot(model))
print(devwidget.trace(model, batch, loss_fn=torch.sum))
devwidget.check(model, batch)
with devwidget.simulate(gpus=1):
    try:
        Adder()(torch.ones(2, device="cuda"))
    except RuntimeError as error:
        print(devwidget.explain(error))
""",
        tmp_path,
    )
    assert "Linear · 6 parameters" in text
    assert "error[wrong-device] `add` got tensors on cpu and cuda:0" in text


def test_what_is_asked_for_says_which_package_it_needs(tmp_path: Path) -> None:
    lines = [f"    lambda: {call},\n" for call in ASKED]
    text = run(
        f"""
model = nn.Linear(2, 2)
trace = devwidget.trace(model, torch.ones(1, 2))
for ask in [
{"".join(lines)}]:
    try:
        print("no refusal:", ask())
    except ImportError as error:
        print(error)
""",
        tmp_path,
    )
    assert text.splitlines() == [
        line
        for what in ASKED.values()
        for line in (f"{what}, which is not installed here", f"  help: pip install {what.split('`')[1]}")
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_gpus")
def test_the_plugin_tells_the_tensor(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HIDE, encoding="utf-8")
    (tmp_path / "test_adder.py").write_text(
        f"{MODEL}\ndef test_adder():\n    Adder()(torch.ones(2, device='cuda'))\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-p", "devwidget.pytest_plugin", "--devwidget-gpus=1", "-q", "-p", "no:xdist"]
    done = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "`add` got tensors on cpu and cuda:0" in done.stdout
