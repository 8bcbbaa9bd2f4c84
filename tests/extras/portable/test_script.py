"""`run --portable`: the edits of a script are verified by a run of an edited copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """\
import sys
import torch

torch.manual_seed(0)
x = torch.ones(2, 4).cuda()
torch.cuda.synchronize()
print(x.sum().item(), {last})
"""


def run_script(folder: Path, last: str) -> tuple[str, str]:
    """Return what the script prints, and the report."""
    script = folder / "train.py"
    script.write_text(SCRIPT.format(last=last), encoding="utf-8")
    command = [sys.executable, "-m", "devwidget", "run", "--gpus", "2", "--portable", str(script), "first"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert os.listdir(folder) == ["train.py"]
    return ran.stdout, ran.stderr


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_edited_script_that_prints_the_same_is_verified(tmp_path: Path) -> None:
    printed, report = run_script(tmp_path, "sys.argv[1:]")
    assert printed == "8.0 ['first']\n"
    assert report.count("info[hard-coded-device]") == 2
    assert report.count("(verified) use the accelerator") == 2
    assert "+ x = torch.ones(2, 4).to(torch.accelerator.current_accelerator())" in report


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_script_that_prints_something_else_each_time_is_not_verified(tmp_path: Path) -> None:
    _, report = run_script(tmp_path, "__import__('time').time_ns()")
    assert "(verified)" not in report
    assert report.count("differs from run to run") == 2
