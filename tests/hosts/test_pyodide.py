"""Saved records in Pyodide, which JupyterLite's kernel is: there is no torch for it, and none is needed to read them."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import torch

import devwidget

HERE = pathlib.Path(__file__).parent
PACKAGES = pathlib.Path(devwidget.__file__).parents[1]


def test_a_saved_trace_is_read_printed_and_made_a_page(tmp_path: pathlib.Path) -> None:
    if not (HERE / "node_modules" / "pyodide").exists():
        pytest.skip("no node_modules here: nox -s hosts")
    with devwidget.simulate(gpus=1):
        trace = devwidget.trace(torch.nn.Linear(3, 3).to("cuda:0"), torch.ones(2, 3))
    trace.save(tmp_path / "trace.json")
    command = ["node", HERE / "pyodide.mjs", PACKAGES / "devwidget", tmp_path]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.strip() == str(trace).strip()
    assert (tmp_path / "trace.html").read_text(encoding="utf-8").count("wrong-device")
