"""The pytest plugin, each time in a pytest of its own: a fork of one process that has imported torch."""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from tests.forked_programs import ROOT, programs

pytestmark = pytest.mark.process
OPTIONS = ("-p", "no:cacheprovider", "-p", "devwidget.pytest_plugin", "test_suite.py")
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Neither browsers nor Jupyter: a test takes two seconds less."""

SUITE = """
import pytest, torch
from torch import nn

COUNT = torch.cuda.device_count()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.scale = torch.ones(2)
    def forward(self, x):
        return self.layer(x) * self.scale

@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    assert COUNT == 2
    assert torch.cuda.get_device_properties(0).total_memory == 8 << 30

@pytest.mark.skipif(COUNT < 2, reason="needs two GPUs")
def test_net():
    Net().to("cuda:1")(torch.ones(3, 4, device="cuda:1"))

def test_of_something_else():
    assert 1 + 1 == 3
"""
AT_THE_TOP = """
import torch

mask = torch.ones(3)
scores = torch.ones(3, device="cuda:1") @ mask
"""
MARKED = """
import pytest, torch

class Waits(torch.nn.Module):
    def forward(self, x):
        return x.sum().item()

@pytest.mark.placement
def test_waits():
    Waits()(torch.ones(2, device="cuda:0"))

@pytest.mark.placement(allow="host-sync")
def test_is_meant_to_wait(placement):
    assert Waits()(torch.ones(2, device="cuda:0")) == 2
    assert len(placement.trace.waits) == 1

def test_that_is_watched(placement):
    layer = torch.nn.Linear(2, 2).cuda()
    placement.attach(layer)
    layer(torch.ones(1, 2).cuda())
    assert [event.class_name for event in placement.trace.modules] == ["Linear"]
    assert len(placement.trace.moves) == 3

@pytest.mark.placement(fail_on=["worst"])
def test_of_a_severity_that_is_none():
    pass
"""


class Ran:
    """What a pytest has said, and how many tests ended in which way."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.said = done.returncode, done.stdout + done.stderr
        self.outcomes = {name: int(count) for count, name in re.findall(r"(\d+) (passed|failed|skipped|error)", self.summary())}

    def summary(self) -> str:
        return next((line for line in reversed(self.said.splitlines()) if re.search(r" in [\d.]+s", line)), "")

    def has_in_turn(self, *patterns: str) -> bool:
        lines = iter(self.said.splitlines())
        return all(any(fnmatch.fnmatchcase(line, pattern) for line in lines) for pattern in patterns)


@pytest.fixture
def suite(tmp_path: pathlib.Path) -> Callable[..., Ran]:
    def run(*options: str, source: str = SUITE) -> Ran:
        (tmp_path / "test_suite.py").write_text(source, encoding="utf-8")
        return Ran(programs().run(tmp_path, "-m", "pytest", *OPTIONS, *options, **ALONE))

    return run


def test_a_suite_on_virtual_gpus_runs_what_is_skipped_without_and_explains_what_fails(
    suite: Callable[..., Ran], tmp_path: pathlib.Path
) -> None:
    assert suite().outcomes == {"failed": 1, "skipped": 2}
    ran = suite("--devwidget-gpus=2", "--devwidget-memory=8GiB", "--junitxml=found.xml")
    assert ran.outcomes == {"passed": 1, "failed": 2}
    assert ran.has_in_turn(
        "*- devwidget -*",
        "error[[]unregistered-tensor] `scale` is on cpu*",
        "*- self.scale = torch.ones(2)",
        '*+ self.register_buffer("scale", torch.ones(2))',
        "devwidget: 2 virtual GPUs · 1 of 2 failures explained · 1 unregistered-tensor",
    ), ran.said
    assert ran.said.count("error[") == 1
    properties = {each.get("name"): each.get("value") for each in ElementTree.parse(tmp_path / "found.xml").iter("property")}
    assert properties["devwidget"].startswith("unregistered-tensor test_suite")
    assert '+        self.register_buffer("scale", torch.ones(2))' in properties["devwidget-fix"]


@pytest.mark.slow
def test_the_processes_of_xdist_have_virtual_gpus_too(suite: Callable[..., Ran], tmp_path: pathlib.Path) -> None:
    given = ("--devwidget-gpus=2", "--devwidget-memory=8GiB", "--devwidget-sarif=found.sarif")
    ran = suite("-p", "xdist", *given, "-n2")
    assert ran.outcomes == {"passed": 1, "failed": 2}
    assert ran.has_in_turn("error[[]unregistered-tensor]*", "devwidget: 2 virtual GPUs · 1 of 2 failures explained*"), ran.said
    (result,) = json.loads((tmp_path / "found.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert result["ruleId"] == "unregistered-tensor"
    assert result["fixes"]


def test_a_marked_test_fails_on_what_is_found_and_the_fixture_has_the_trace(suite: Callable[..., Ran]) -> None:
    ran = suite("--devwidget-gpus=1", "--strict-markers", source=MARKED)
    assert ran.outcomes == {"passed": 2, "failed": 2}
    expected = "E *warning[[]host-sync]*", "E *'worst' is not a severity*", "devwidget: 1 virtual GPU · 1 of 2*"
    assert ran.has_in_turn(*expected), ran.said


def test_a_suite_that_does_not_ask_loads_no_torch_and_hears_nothing(tmp_path: pathlib.Path) -> None:
    program = "import sys\ndef test_nothing_is_loaded():\n    assert not {'torch', 'devwidget.api'} & {*sys.modules}"
    (tmp_path / "test_suite.py").write_text(program, encoding="utf-8")
    environment = os.environ | ALONE | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *OPTIONS]
    ran = Ran(subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True))
    assert ran.outcomes == {"passed": 1}
    assert "devwidget:" not in ran.said


@pytest.mark.slow
def test_a_file_that_fails_while_it_is_imported_is_a_failure_and_is_explained(suite: Callable[..., Ran]) -> None:
    ran = suite("--devwidget-gpus=2", source=AT_THE_TOP)
    assert ran.outcomes == {"error": 1}
    expected = "devwidget: 2 virtual GPUs · 1 of 1 failures explained*"
    assert ran.has_in_turn("error[[]wrong-device]*", "*+ *mask = torch.ones(3*cuda:1*", expected), ran.said


@pytest.mark.parametrize(("chosen", "said"), [("nothing_of_that_name", "no tests ran"), ("on_a_gpu", "no failures")])
def test_a_suite_of_which_nothing_ran_did_not_pass(suite: Callable[..., Ran], chosen: str, said: str) -> None:
    ran = suite("--devwidget-gpus=2", "--devwidget-memory=8GiB", "-k", chosen)
    assert ran.has_in_turn(f"devwidget: 2 virtual GPUs · {said}"), ran.said


def test_gpus_that_make_no_sense_are_one_line(suite: Callable[..., Ran]) -> None:
    ran = suite("--devwidget-gpus=2", "--devwidget-memory=lots")
    assert (ran.status, ran.has_in_turn("ERROR: *lots*")) == (pytest.ExitCode.USAGE_ERROR, True)
