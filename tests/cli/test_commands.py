"""The other commands: what they print, and the exit statuses that their help promises."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import devwidget
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.cli.main import _build_parser, main
from devwidget.extras import extras
from devwidget.records.finding import Finding
from devwidget.records.trace import Trace

STEP = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.scale = torch.ones(2)
    def forward(self, x):
        return self.layer(x) * self.scale

def step():
    return Net().to("cuda:0"), torch.ones(3, 4, device="cuda:0")

def clean():
    return {"model": nn.Linear(4, 2).cuda(), "batch": torch.ones(3, 4, device="cuda:0"), "loss_fn": lambda out: out.sum()}

def fails():
    return torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1"), 1

def large():
    return nn.Linear(1 << 14, 1 << 14, device="meta"), torch.ones(1, 1 << 14, device="meta")

def on_gpu():
    model = nn.Linear(4, 2).to("cuda:0")
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.ones(3, 4, device="cuda:0")
    return {"model": model, "batch": batch, "loss_fn": lambda out: out.sum(), "optimizer": optimizer}

def alone():
    return nn.Linear(4, 2)

def odd():
    return {"model": nn.Linear(4, 2), "batch": torch.ones(4), "los_fn": None}
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "outside_step", raising=False)
    (tmp_path / "outside_step.py").write_text(STEP, encoding="utf-8")


def told(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


def test_check_fails_with_the_report_and_keeps_the_trace(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = told(capsys, "check", "--gpus", "1", "--save", "found.json", "outside_step.py:step")
    assert (status, err) == (1, "")
    assert '+ self.register_buffer("scale", torch.ones(2))' in out
    assert "\033" not in out
    assert [finding.kind for finding in devwidget.load("found.json").findings] == ["unregistered-tensor"]
    status, out, _ = told(capsys, "check", "--gpus", "1", "--baseline", "found.json", "outside_step.py:step")
    assert status == 0


@pytest.mark.skipif("formats" not in extras(), reason="an extra is not here")
def test_the_report_is_written_for_other_programs(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    files = [f"--{form}={form}.json" for form in ("save", "json", "brief", "sarif", "perfetto")]
    assert told(capsys, "check", "--gpus", "1", *files, "outside_step.py:step")[0] == 1
    assert json.loads((tmp_path / "brief.json").read_text())["findings"][0]["birth"] == "outside_step.py:9"
    (result,) = json.loads((tmp_path / "sarif.json").read_text())["runs"][0]["results"]
    assert result["fixes"][0]["description"]["text"].endswith("(verified)")
    for form in ("json", "brief", "sarif", "perfetto"):
        status, out, _ = told(capsys, "show", "save.json", "--format", form)
        assert (status, out) == (0, (tmp_path / f"{form}.json").read_text())


def test_check_of_a_clean_step_is_0(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(pathlib.Path.cwd()))
    status, out, _ = told(capsys, "check", "--gpus", "1", "outside_step:clean")
    assert status == 0
    assert "no findings" in out


def test_code_that_raises_is_2_with_its_traceback_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = told(capsys, "check", "--gpus", "2", "outside_step.py:fails")
    assert (status, out) == (2, "")
    assert "RuntimeError: Expected all tensors to be on the same device" in err
    assert "error[wrong-device]" in err


@pytest.mark.skipif("plan" not in extras(), reason="an extra is not here")
def test_plan_says_by_its_status_whether_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "plan", "outside_step.py:large", "--gpus", "1", "--memory", "24GiB")[0] == 0
    status, out, _ = told(capsys, "plan", "outside_step.py:large", "--gpus", "1", "--memory", "512MiB")
    assert status == 1
    assert "does not fit" in out


@pytest.mark.skipif("plan" not in extras(), reason="an extra is not here")
def test_a_step_that_asks_for_a_gpu_is_planned_where_none_is(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = told(capsys, "plan", "outside_step.py:on_gpu", "--gpus", "2", "--memory", "24GiB", "--loop", "trainer")
    assert status == 0
    assert "forward, loss, backward, optimizer" in out
    assert "loop: transformers' Trainer" in out


@pytest.mark.skipif("plan" not in extras(), reason="an extra is not here")
def test_plan_says_which_argument_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = told(capsys, "plan", "--gpus", "1", "outside_step.py:odd")
    assert status == 2
    assert "did you mean 'loss_fn'?" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("check", "outside_step.py:stp"), "did you mean 'step'?"),
        (("check", "outside_step.py:alone"), "returned a `Linear`"),
        (("check", "outside_step.py:odd"), "did you mean 'loss_fn'?"),
        (("check", "nothing"), "is not of the form module:function"),
        (("check", "nothing.py:step"), "there is no file nothing.py"),
        (("check", "--memory", "2GiB", "outside_step.py:step"), "--memory and --card need --gpus"),
        (("check", "--card", "A100-80GB", "outside_step.py:step"), "--memory and --card need --gpus"),
        (("run", "nothing.py"), "there is no script nothing.py"),
        (("run", "-m", "nothing.at.all"), "there is no module nothing.at.all"),
        (("show", "nothing.json"), "cannot be read"),
        (("show", "outside_step.py"), "cannot be read"),
        (("compare", "outside_step.py", "nothing.json"), "cannot be read"),
    ],
)
def test_a_mistake_is_2_and_says_what_was_meant(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str) -> None:
    status, out, err = told(capsys, *args)
    assert (status, out) == (2, "")
    assert err.startswith("devwidget: ")
    assert words in err


def test_no_gpus_of_a_card_are_refused_before_the_card_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(("check", "--gpus", "0", "--card", "A100-80GB", "outside_step.py:step"))
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.endswith("check: error: argument --gpus: '0' is not a number of GPUs; use 1 or more\n")


def test_compare_is_1_for_new_findings_alone(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    Trace().save("clean.json")
    Trace(findings=(Finding("wrong-device", "error", "", "it stays", "because"),)).save("bad.json")
    assert [told(capsys, "compare", *files)[0] for files in (("clean.json", "bad.json"), ("bad.json", "clean.json"))] == [1, 0]
    assert told(capsys, "html", "bad.json", "page.html")[0] == 0
    assert "it stays" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.process
def test_a_saved_record_is_shown_without_torch(tmp_path: pathlib.Path) -> None:
    Trace(findings=(Finding("wrong-device", "error", "", "it stays", "because"),)).save("bad.json")
    program = (
        "import sys; from devwidget.cli.main import main; status = main(sys.argv[1:]); print(status, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, "compare", "bad.json", "bad.json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "0 False"


def test_every_example_of_the_help_is_a_command_line_that_is_understood() -> None:
    examples = re.findall(r"^  (python -m devwidget .*?)(?:  .*)?$", _build_parser().epilog or "", re.MULTILINE)
    lines = [line.strip() for line in examples]
    of_extras = {"formats": 1, "plan": 2, "ranks": 1, "watch": 1}
    assert len(lines) == 8 + sum(of_extras.get(name, 0) for name in extras())
    for line in lines:
        assert callable(_build_parser().parse_args(line.split()[3:]).command)


# -- copies between GPUs


class _Damage(DispatchMode):
    """A machine whose copies from cuda:0 to cuda:1 arrive damaged."""

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = redispatch(func, args, kwargs)
        if func._schema.name == "aten::_to_copy" and (str(args[0].device), str(out.device)) == ("cuda:0", "cuda:1"):
            out[-1:].add_(1)
        return out


def test_gpus_whose_copies_arrive_damaged_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-copies", "--gpus", "3"]) == 0
    assert "arrive unchanged" in capsys.readouterr().out
    with devwidget.simulate(2), _Damage():
        assert main(["check-copies"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "cuda:0 -> cuda:1: copies arrive corrupted. Disable IOMMU or ACS, or copy through the host."
    ]
    assert main(["check-copies", "--gpus", "1"]) == 2
