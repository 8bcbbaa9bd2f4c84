"""`python -m devwidget run --watch`: which model a program trains, and what is said of its steps."""

from __future__ import annotations

import os
import pathlib
import pty
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks

import devwidget
from devwidget.cli.main import main
from devwidget.watching.program import ProgramWatch
from tests.forked_programs import ROOT, programs

PROGRAM = """
import sys, time
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, 4)
    def forward(self, x):
        return self.head(self.body(x).relu())

class Trainer:
    def __init__(self, model):
        self.model = nn.Sequential(model)
    def fit(self, cache={}):
        optimizer = torch.optim.Adam(self.model.parameters())
        for step in range(190):
            x = torch.randn(8, 16, device="cuda")
            cache[step] = torch.ones(4096, device="cuda")
            self.model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(float(sys.argv[1]))

Trainer(Net().cuda()).fit()
print("trained")
"""


COMMAND = ("-m", "devwidget", "run", "--watch", "--gpus", "1", "--memory", "64MiB")


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path / "train.py"


@pytest.mark.process
def test_a_program_is_watched_and_on_a_pipe_only_the_summary_is_said(program: pathlib.Path) -> None:
    saved = program.with_name("watch.jsonl")
    done = programs().run(program.parent, *COMMAND, "--save", str(saved), "--fail-on", "warning", str(program), "0")
    assert (done.stdout, done.returncode) == ("trained\n", 1)
    assert done.stderr.startswith("\nWatched run of Sequential: 190 steps, 1 finding\n")
    assert "\033" not in done.stderr
    assert 'train.py:20      cache[step] = torch.ones(4096, device="cuda")' in done.stderr
    assert "dict `cache` of Trainer.fit() in train.py holds what stays: 162 items" in done.stderr
    run = devwidget.open(saved)
    assert (run.model, run.steps.first[0], run.steps.total) == ("Sequential", 1, 190)
    assert [finding.kind for finding in run.findings] == ["memory-growth"]


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
def test_on_a_terminal_one_line_is_drawn_over_itself(program: pathlib.Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, *COMMAND, str(program), "0.01"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while read := os.read(ours, 65536):
                shown += read
        except OSError:  # the end of a pseudo terminal
            pass
        assert process.wait() == 0
    lines = shown.decode().partition("Watched run of")[0].split("\r\033[K")
    assert lines[0] == ""
    assert lines[1].startswith("step ")
    assert "  between the steps " in lines[1]
    assert "cuda:0 " in lines[1]
    assert lines[-2].startswith("step ")
    assert lines[-1].strip() == ""


def test_nothing_trained_is_said() -> None:
    with ProgramWatch() as _:
        pass
    watching = ProgramWatch()
    with watching:
        nn.Linear(1, 1)(torch.ones(1, 1))
    assert watching.result.steps.total == 0
    assert "no optimizer of torch has stepped twice" in watching.result.not_checked[0]


def test_the_outermost_module_that_is_called_is_the_model_and_no_hook_stays() -> None:
    class Wrapper(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

    holder, teacher = Wrapper(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(holder.parameters(), 0.1)
    watching = ProgramWatch()
    with watching:
        for _ in range(5):
            holder.model(teacher(torch.ones(1, 2))).sum().backward()
            optimizer.step()
    assert watching.result.model == "Sequential"
    assert watching.result.steps.first == (1, 2, 3, 4)
    assert not any(module._forward_pre_hooks for module in (*holder.modules(), teacher))
    assert not _global_optimizer_post_hooks


@pytest.mark.parametrize("option", ["--heal", "--perfetto=trace.json", "--allow=cpu -> cuda:0"])
def test_what_only_a_recording_has_is_refused(program: pathlib.Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main([*COMMAND[2:], option, str(program)]) == 2
    assert f"a watched run has no {option.partition('=')[0]}" in capsys.readouterr().err
