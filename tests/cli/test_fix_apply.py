"""`python -m devwidget fix apply`: what was found is written where it belongs, if that is agreed to, and not otherwise."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import sys

import pytest

import devwidget
from devwidget.cli.main import main

MODEL = """from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.scale = torch.ones(2)
    def forward(self, x):
        return self.layer(x) * self.scale
""".replace("from torch import nn\n", "import torch\nfrom torch import nn\n")
STEP = """import torch
from model_of_step import Net

def step():
    return Net().to("cuda:0"), torch.ones(3, 4, device="cuda:0")
"""


@pytest.fixture
def model(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> pathlib.Path:
    """The file of the model, with a trace of its fault in `found.json`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "model_of_step", raising=False)
    monkeypatch.delitem(sys.modules, "step_of_fix", raising=False)
    (tmp_path / "model_of_step.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "step_of_fix.py").write_text(STEP, encoding="utf-8")
    assert main(["check", "--gpus", "1", "--save", "found.json", "step_of_fix:step"]) == 1
    capsys.readouterr()
    return tmp_path / "model_of_step.py"


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_the_edit_goes_into_the_file_of_the_model_with_a_backup(
    model: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "y\n")
    assert main(["fix", "apply", "found.json"]) == 0
    assert "+        self.register_buffer('scale', torch.ones(2))" in capsys.readouterr().out
    assert "self.register_buffer('scale', torch.ones(2))" in model.read_text(encoding="utf-8")
    assert model.with_name("model_of_step.py.before-fix").read_text(encoding="utf-8") == MODEL
    sys.modules.pop("model_of_step"), sys.modules.pop("step_of_fix")
    assert main(["check", "--gpus", "1", "step_of_fix:step"]) == 0


@pytest.mark.parametrize("words", ["", "\n", "n\n"], ids=["no-input", "return", "no"])
def test_without_a_yes_nothing_is_written(model: pathlib.Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    answer(monkeypatch, words)
    assert main(["fix", "apply", "found.json"]) == 1
    assert model.read_text(encoding="utf-8") == MODEL
    assert not list(model.parent.glob("*.before-fix"))


def test_yes_asks_nothing(model: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "apply", "--yes", "found.json"]) == 0
    assert "[y/N]" not in capsys.readouterr().out
    assert model.read_text(encoding="utf-8") != MODEL


def test_a_file_that_changed_since_is_refused(model: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = MODEL.replace("ones(2)", "zeros(2)")
    model.write_text(changed, encoding="utf-8")
    assert main(["fix", "apply", "--yes", "found.json"]) == 2
    assert "has changed" in capsys.readouterr().err
    assert model.read_text(encoding="utf-8") == changed


def test_a_choice_among_designs_is_left_to_the_user(model: pathlib.Path) -> None:
    trace = devwidget.load("found.json")
    (finding,) = trace.findings
    choice = dataclasses.replace(finding.fixes[0], confidence="choice")
    dataclasses.replace(trace, findings=(dataclasses.replace(finding, fixes=(choice,)),)).save("found.json")
    assert main(["fix", "apply", "--yes", "found.json"]) == 0
    assert model.read_text(encoding="utf-8") == MODEL


def test_an_edit_of_a_cell_is_refused_before_anything_is_written(
    model: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = devwidget.load("found.json")
    (finding,) = trace.findings
    (edit,) = finding.fixes[0].edits
    of_cell = dataclasses.replace(finding.fixes[0], edits=(edit, dataclasses.replace(edit, file="<ipython-input-3-abc>")))
    dataclasses.replace(trace, findings=(dataclasses.replace(finding, fixes=(of_cell,)),)).save("found.json")
    assert main(["fix", "apply", "--yes", "found.json"]) == 2
    assert "a notebook cell" in capsys.readouterr().err
    assert model.read_text(encoding="utf-8") == MODEL
