"""`python -m devwidget run --watch`: which model a program trains, and what is said of its steps."""

from __future__ import annotations

import pathlib

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks

import devwidget
from devwidget.cli.main import main
from devwidget.extras.watch.program import ProgramWatch
from tests.forked_programs import programs

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
    assert "dict `cache` in Trainer.fit() keeps them alive, 162 items" in done.stderr
    run = devwidget.open(saved)
    assert (run.model, run.steps.first[0], run.steps.total) == ("Sequential", 1, 190)
    assert [finding.kind for finding in run.findings] == ["memory-growth"]


def test_nothing_trained_is_said() -> None:
    with ProgramWatch() as _:
        pass
    watching = ProgramWatch()
    with watching:
        nn.Linear(1, 1)(torch.ones(1, 1))
    assert watching.result.steps.total == 0
    assert "no torch optimizer stepped twice" in watching.result.not_checked[0]


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
    assert f"{option.partition('=')[0]} cannot be combined with --watch" in capsys.readouterr().err
