"""The pytest plugin, each time in a pytest of its own."""

from __future__ import annotations

import json
import pathlib
import xml.etree.ElementTree as ElementTree

import pytest

pytest_plugins = ("pytester",)
ROOT = pathlib.Path(__file__).parents[2]
PLUGIN = ("-p", "devwidget.pytest_plugin")

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


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # neither browsers nor Jupyter: a test takes two seconds less
    pytester.makepyfile(SUITE)
    return pytester


def test_a_suite_on_virtual_gpus_runs_what_is_skipped_without_and_explains_what_fails(suite: pytest.Pytester) -> None:
    suite.runpytest_subprocess(*PLUGIN).assert_outcomes(failed=1, skipped=2)
    ran = suite.runpytest_subprocess(*PLUGIN, "--devwidget-gpus=2", "--devwidget-memory=8GiB", "--junitxml=found.xml")
    ran.assert_outcomes(passed=1, failed=2)
    ran.stdout.fnmatch_lines(
        [
            "*- devwidget -*",
            "error[[]unregistered-tensor] `scale` is on cpu*",
            "*- self.scale = torch.ones(2)",
            "*+ self.register_buffer('scale', torch.ones(2))",
            "devwidget: 2 virtual GPUs · 1 of 2 failures explained · 1 unregistered-tensor",
        ]
    )
    assert ran.stdout.str().count("error[") == 1
    properties = {each.get("name"): each.get("value") for each in ElementTree.parse("found.xml").iter("property")}
    assert properties["devwidget"].startswith("unregistered-tensor test_a_suite")
    assert "+        self.register_buffer('scale', torch.ones(2))" in properties["devwidget-fix"]


@pytest.mark.slow
def test_the_processes_of_xdist_have_virtual_gpus_too(suite: pytest.Pytester) -> None:
    ran = suite.runpytest_subprocess(
        "-p", "xdist", *PLUGIN, "--devwidget-gpus=2", "--devwidget-memory=8GiB", "-n2", "--devwidget-sarif=found.sarif"
    )
    ran.assert_outcomes(passed=1, failed=2)
    ran.stdout.fnmatch_lines(["error[[]unregistered-tensor]*", "devwidget: 2 virtual GPUs · 1 of 2 failures explained*"])
    (result,) = json.loads((suite.path / "found.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert result["ruleId"] == "unregistered-tensor"
    assert result["fixes"]


def test_a_marked_test_fails_on_what_is_found_and_the_fixture_has_the_trace(suite: pytest.Pytester) -> None:
    suite.makepyfile(MARKED)
    ran = suite.runpytest_subprocess(*PLUGIN, "--devwidget-gpus=1", "--strict-markers", "-k", "not net")
    ran.assert_outcomes(passed=2, failed=2)
    ran.stdout.fnmatch_lines(["E *warning[[]host-sync]*", "E *'worst' is no severity*", "devwidget: 1 virtual GPU · 1 of 2*"])


def test_a_suite_that_does_not_ask_loads_no_torch_and_hears_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile("import sys\ndef test_nothing_is_loaded():\n    assert not {'torch', 'devwidget.api'} & {*sys.modules}")
    ran = suite.runpytest_subprocess(*PLUGIN, "-k", "nothing")
    ran.assert_outcomes(passed=1)
    assert "devwidget:" not in ran.stdout.str()


def test_a_file_that_fails_while_it_is_imported_is_a_failure_and_is_explained(suite: pytest.Pytester) -> None:
    suite.makepyfile(AT_THE_TOP)
    ran = suite.runpytest_subprocess(*PLUGIN, "--devwidget-gpus=2")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(
        ["error[[]wrong-device]*", "*+ *mask = torch.ones(3*cuda:1*", "devwidget: 2 virtual GPUs · 1 of 1 failures explained*"]
    )


@pytest.mark.parametrize(("chosen", "said"), [("nothing_of_that_name", "no tests ran"), ("on_a_gpu", "no failures")])
def test_a_suite_of_which_nothing_ran_did_not_pass(suite: pytest.Pytester, chosen: str, said: str) -> None:
    ran = suite.runpytest_subprocess(*PLUGIN, "--devwidget-gpus=2", "--devwidget-memory=8GiB", "-k", chosen)
    ran.stdout.fnmatch_lines([f"devwidget: 2 virtual GPUs · {said}"])


def test_gpus_that_make_no_sense_are_one_line(suite: pytest.Pytester) -> None:
    ran = suite.runpytest_subprocess(*PLUGIN, "--devwidget-gpus=2", "--devwidget-memory=lots")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["ERROR: *lots*"])
