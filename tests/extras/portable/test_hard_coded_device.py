"""`portable=True`: lines that are written for CUDA, their form for any accelerator, and what stays."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import devwidget
from devwidget.extras.portable.hard_coded_device import KIND
from devwidget.extras.portable.replacements import REPLACEMENTS
from devwidget.records.finding import Finding, apply_edits
from tests.older_torch import before

HEAD = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
"""


@pytest.fixture(autouse=True)
def _gpus() -> Iterator[None]:
    with devwidget.simulate(gpus=2):
        yield


def load_program(folder: Path, text: str) -> dict[str, Any]:
    file = folder / "net.py"
    file.write_text(text, encoding="utf-8")
    linecache.checkcache(str(file))
    names: dict[str, Any] = {"__name__": "net", "__file__": str(file)}
    exec(compile(text, str(file), "exec"), names)
    return names


def find_in(folder: Path, body: str, above: str = "") -> list[Finding]:
    """What is found in a forward pass of these lines."""
    lines = "".join(f"        {row}\n" for row in body.splitlines())
    net = load_program(folder, f"{above}{HEAD}{lines}")["Net"]
    torch.manual_seed(0)
    trace = devwidget.check(net().to("cuda:0"), torch.ones(2, 4, device="cuda:0"), portable=True, fail_on=("error",))
    return [finding for finding in trace.findings if finding.kind == KIND]


def new_line(finding: Finding) -> str:
    return finding.fixes[0].code


CASES = {
    "x = x.cuda()": "x = x.to(torch.accelerator.current_accelerator())",
    "x = x.cuda(non_blocking=True)": "x = x.to(torch.accelerator.current_accelerator(), non_blocking=True)",
    'x = x.to("cuda")': "x = x.to(torch.accelerator.current_accelerator())",
    'x = x + torch.ones(4, device="cuda")': "x = x + torch.ones(4, device=torch.accelerator.current_accelerator())",
    'x = x.to(torch.device("cuda"))': "x = x.to(torch.device(torch.accelerator.current_accelerator().type))",
    'device = "cuda"; x = x.to(device)': "device = torch.accelerator.current_accelerator().type; x = x.to(device)",
    'x = x.to("cuda" if torch.cuda.is_available() else "cpu")': (
        'x = x.to(torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu")'
    ),
    "torch.cuda.synchronize()": "torch.accelerator.synchronize()",
    "torch.cuda.set_device(0)": "torch.accelerator.set_device_index(0)",
    'with torch.autocast("cuda", enabled=False): x = x + 1': (
        "with torch.autocast(torch.accelerator.current_accelerator().type, enabled=False): x = x + 1"
    ),
    "event = torch.cuda.Event(enable_timing=False)": "event = torch.Event(enable_timing=False)",
}


@pytest.mark.parametrize("body", CASES)
def test_an_edit_is_right_and_runs(body: str, tmp_path: Path) -> None:
    (found,) = find_in(tmp_path, f"{body}\nreturn self.layer(x)")
    assert (found.severity, new_line(found)) == ("info", CASES[body])
    assert found.fixes[0].verified


@before((2, 9), "torch.accelerator has no memory functions")
def test_memory_functions_are_replaced_and_the_version_is_named(tmp_path: Path) -> None:
    (found,) = find_in(tmp_path, "torch.cuda.empty_cache(); torch.cuda.max_memory_allocated()\nreturn self.layer(x)")
    assert new_line(found) == "torch.accelerator.empty_cache(); torch.accelerator.max_memory_allocated()"
    assert found.fixes[0].verified
    assert "torch 2.9 or later" in str(found)
    assert "without an accelerator, `torch.cuda.empty_cache` runs, and its replacement raises an error" in str(found)


@pytest.mark.filterwarnings("ignore:.torch.cuda.amp:FutureWarning")
def test_autocast_gets_the_type_of_the_accelerator(tmp_path: Path) -> None:
    (found,) = find_in(tmp_path, "with torch.cuda.amp.autocast(enabled=False):\n    x = self.layer(x)\nreturn x")
    assert new_line(found) == "with torch.amp.autocast(torch.accelerator.current_accelerator().type, enabled=False):"
    assert found.fixes[0].verified


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ('x = x.to("cuda:0")', '`"cuda:0"` names one device and stays'),
        ("x = x.cuda(0)", "`.cuda(0)` names one device and stays"),
        ("torch.cuda.get_device_name(0)", "`torch.cuda.get_device_name` stays"),
        ("torch.cuda.synchronize(device=0)", "`torch.cuda.synchronize` stays"),
    ],
)
def test_what_has_no_replacement_is_only_named(body: str, note: str, tmp_path: Path) -> None:
    (found,) = find_in(tmp_path, f"{body}\nreturn self.layer(x)")
    assert found.fixes == ()
    assert note in str(found)


SILENT = """\
device = torch.accelerator.current_accelerator()
x = x.to(device)
torch.accelerator.synchronize()
if x.device.type == "cuda":
    names = {"cuda": 1}
if x.sum() > 1e9:
    x = x.cuda()
place = "mps" if torch.backends.mps.is_available() else "cuda" if torch.cuda.is_available() else "cpu"
return self.layer(x)
"""


def test_a_portable_program_is_silent(tmp_path: Path) -> None:
    unused = "def unused(x):\n    return x.cuda()\n\n\n"
    assert find_in(tmp_path, SILENT, above=unused) == []


def test_nothing_is_reported_without_the_request(tmp_path: Path) -> None:
    net = load_program(tmp_path, f"{HEAD}        return self.layer(x.cuda())\n")["Net"]
    trace = devwidget.trace(net().cuda(), torch.ones(2, 4, device="cuda"))
    assert KIND not in (*trace.checked, *(finding.kind for finding in trace.findings))


def test_a_line_that_ran_before_the_step_is_found_and_its_edit_was_not_run(tmp_path: Path) -> None:
    (found,) = find_in(tmp_path, "return self.layer(x.to(DEVICE))", above='DEVICE = "cuda"\n\n')
    assert new_line(found) == "DEVICE = torch.accelerator.current_accelerator().type"
    assert not found.fixes[0].verified
    assert "already run" in found.fixes[0].not_tried


TWICE = """\
class Twice:
    def __init__(self, x):
        self.x = x

    def cuda(self):
        return 2 * self.x

    def to(self, _):
        return self.x


"""


@pytest.mark.parametrize(
    "body",
    [
        "newer = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8\nreturn self.layer(x)",
        "if torch.cuda.is_available():\n    x = x + 1\n    torch.cuda.get_device_name(0)\nreturn self.layer(x)",
        'kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]\nreturn self.layer(x)',
    ],
)
def test_a_guard_of_what_stays_is_not_edited(body: str, tmp_path: Path) -> None:
    found = find_in(tmp_path, body)
    assert [finding.fixes for finding in found] == [()] * len(found)
    assert "`torch.cuda.is_available` stays, as `" in str(found[0])


def test_a_default_value_is_only_named(tmp_path: Path) -> None:
    body = 'def moved(x, device="cuda"):\n    return x.to(device) + 1\nreturn moved(self.layer(x))'
    (found,) = find_in(tmp_path, body)
    assert found.fixes == ()
    assert "stays: a default value is computed when the function is defined" in str(found)


def test_an_edit_with_another_result_is_withdrawn(tmp_path: Path) -> None:
    body = "x = Twice(x).cuda()\nreturn self.layer(x)"
    (found,) = find_in(tmp_path, body, above=TWICE)
    assert found.fixes == ()
    assert "a different result" in str(found)


def test_the_edited_program_has_nothing_left_to_report(tmp_path: Path) -> None:
    program = "\n".join(("x = x.cuda()", 'shift = torch.zeros(4, device="cuda")', "return self.layer(x) + shift"))
    found = find_in(tmp_path, program)
    edits = [edit for finding in found for edit in finding.fixes[0].edits]
    rows = (tmp_path / "net.py").read_text(encoding="utf-8").splitlines()
    edited = apply_edits(rows, edits)[len(HEAD.splitlines()) :]
    assert find_in(tmp_path, "\n".join(row.strip() for row in edited)) == []


@before((2, 10), "torch.accelerator lacks some of its names")
def test_every_replacement_exists() -> None:
    for old, new in REPLACEMENTS.items():
        for name in (old, new.name):
            owner: Any = torch
            for part in name.split(".")[1:]:
                owner = getattr(owner, part)
