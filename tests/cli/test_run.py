"""`python -m devwidget run` beside `python`: the program must not notice, and the report comes after it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.forked_programs import ROOT, programs

pytestmark = pytest.mark.process
Run = Callable[..., subprocess.CompletedProcess[str]]

WHOLE = """
import atexit, multiprocessing, os, sys, threading
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return torch.tensor(index * index)

def square(number):
    return (torch.tensor(number) ** 2).item(), __name__, __spec__ is None

def later():
    threading.Event().wait(0.2)
    print("thread", torch.ones(2).sum().item(), flush=True)

if __name__ == "__main__":
    print(sys.argv, sys.path[0], __file__, __spec__, __package__, sorted(globals()), sys.flags.safe_path, flush=True)
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, [1, 2, 3]), flush=True)
    print([batch.tolist() for batch in DataLoader(Squares(), 2, num_workers=2)], flush=True)
    if os.fork() == 0:
        print("child", flush=True)
        sys.exit(5)
    print(os.WEXITSTATUS(os.wait()[1]), flush=True)
    threading.Thread(target=later).start()
    atexit.register(print, "at exit", flush=True)
    sys.exit(3)
"""
FAULTY = """
import torch
model = torch.nn.Linear(4, 2).to("cuda:1")
batch = torch.ones(3, 4)
print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory >> 30)
print(model(batch).shape)
"""
FAILING_TWICE = """
import torch
try:
    torch.nn.Linear(2, 3)(torch.ones(4))
finally:
    torch.ones(2, requires_grad=True).backward()
"""
IN_A_THREAD = "import threading, torch\nthreading.Thread(target=lambda: torch.ones(2).view(3), name='one').start()"


@pytest.fixture
def python(tmp_path: pathlib.Path) -> Run:
    """Runs `python ARGS` in the folder of the programs."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *args]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, encoding="utf-8")

    return run


@pytest.fixture
def ours(tmp_path: pathlib.Path) -> Run:
    """Runs `python -m devwidget run ARGS` there, in a fork of a process that has imported torch."""
    return lambda *args, **environ: programs().run(tmp_path, "-m", "devwidget", "run", *args, **environ)


def write(folder: pathlib.Path, source: str) -> None:
    (folder / "train.py").write_text(source, encoding="utf-8")


@pytest.mark.slow
def test_a_program_with_processes_workers_and_threads_does_not_notice(python: Run, tmp_path: pathlib.Path) -> None:
    write(tmp_path, WHOLE)
    arguments = ("train.py", "--lr", "1", "-m", "--gpus")
    plain, ours = python(*arguments), python("-m", "devwidget", "run", *arguments)
    assert plain.stdout.count("\n") == 9
    assert ours.stdout == plain.stdout
    assert ours.returncode == plain.returncode == 3
    assert ours.stderr.count("Trace: ") == 1


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("def fail():\n    raise ValueError('no')\nfail()", 1),
        ("import sys\nsys.excepthook = lambda kind, error, trace: print(error, trace.tb_frame.f_code.co_name)\n1 / 0", 1),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass", -signal.SIGINT),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import sys\nsys.exit('a message')", 1),
        ("print(", 1),
        pytest.param(FAILING_TWICE, 1, marks=pytest.mark.slow),
        pytest.param(IN_A_THREAD, 0, marks=pytest.mark.slow),
    ],
    ids=["exception", "hook", "interrupt", "terminated", "message", "syntax", "torch", "thread"],
)
def test_a_program_ends_as_it_would_end_without_us(python: Run, ours: Run, tmp_path: pathlib.Path, ending: str, status: int):
    write(tmp_path, f"print('begun', flush=True)\n{ending}\n")
    plain, run = python("train.py"), ours("train.py")
    assert run.stdout == plain.stdout
    assert run.returncode == plain.returncode == status
    said, _, report = run.stderr.partition("\nTrace: ")
    assert plain.stderr.strip() in (said.strip(), report.strip().splitlines()[-1] if report else "")


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "line"), [("4", "rank 3 of 4\nTrace: "), ("1", "\nTrace: ")])
def test_the_report_of_a_rank_bears_its_number(ours: Run, tmp_path: pathlib.Path, ranks: str, line: str) -> None:
    write(tmp_path, "import torch\n")
    done = ours("--gpus", "2", "train.py", RANK=str(int(ranks) - 1), WORLD_SIZE=ranks)
    assert f"{line}nothing ran on the 2 virtual GPUs" in done.stderr


def test_the_report_comes_after_the_exception_and_names_line_and_edit(python: Run, tmp_path: pathlib.Path) -> None:
    write(tmp_path, FAULTY)
    ours = python("-m", "devwidget", "run", "--gpus", "2", "--memory", "8GiB", "--save", "found.json", "train.py")
    assert (ours.stdout, ours.returncode) == ("2 8\n", 1)
    told = ours.stderr[ours.stderr.index("Traceback (most recent call last)") :]
    assert os.path.join("devwidget", "cli") not in told
    assert "RuntimeError: Expected all tensors" in told[: told.index("Trace: ")]
    assert told.count("Expected all tensors") == 1
    assert '+ batch = torch.ones(3, 4, device="cuda:1")' in told[told.index("Trace: ") :]
    assert "\033" not in told
    assert json.loads((tmp_path / "found.json").read_text())["record"] == "Trace"


def test_healing_goes_on_to_the_end_and_can_fail_at_it(ours: Run, tmp_path: pathlib.Path) -> None:
    write(tmp_path, f"{FAULTY}\nimport os\nos.chdir('/')")
    healed = ours("--gpus", "2", "--heal", "--fail-on", "error", "--html", "found.html", "train.py")
    assert (healed.stdout, healed.returncode) == ("2 16\ntorch.Size([3, 2])\n", 1)
    assert "error[wrong-device]" in healed.stderr
    assert (tmp_path / "found.html").exists()


def test_a_module_runs_as_python_runs_it(python: Run, ours: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "other.py").write_text("name = 'other'")
    program = "import sys\nfrom .other import name\nprint(name, __name__, __package__, __spec__.name, sys.argv, sys.path[0])"
    (tmp_path / "package" / "__main__.py").write_text(program)
    plain, run = python("-m", "package", "--lr", "1"), ours("-m", "package", "--lr", "1")
    assert plain.stdout.startswith("other __main__ package package.__main__")
    assert (run.stdout, run.returncode) == (plain.stdout, 0)


APPLICATION = """
import sys
from helper import name
print(name, __name__, repr(__package__), __spec__.name, sys.argv, sys.path[0], __file__, __loader__ is __spec__.loader)
"""


@pytest.mark.parametrize("flags", [(), pytest.param(("-P",), marks=pytest.mark.slow)], ids=["plain", "safe path"])
@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_folder_and_an_archive_with_a_main_run_as_python_runs_them(
    kind: str, flags: tuple[str, ...], python: Run, ours: Run, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "application").mkdir()
    (tmp_path / "application" / "helper.py").write_text("name = 'helper'")
    (tmp_path / "application" / "__main__.py").write_text(APPLICATION)
    if kind == "archive":
        shutil.make_archive(str(tmp_path / "application"), "zip", tmp_path / "application")
    target = {"folder": "application", "archive": "application.zip"}[kind]
    plain = python(*flags, target, "--lr", "1")
    command = ("-m", "devwidget", "run", target, "--lr", "1")
    run = python(*flags, *command) if flags else ours(target, "--lr", "1")
    assert plain.stdout.startswith("helper __main__ ''")
    assert (run.stdout, run.returncode) == (plain.stdout, 0)


def test_a_folder_without_a_main_is_refused(ours: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "application").mkdir()
    run = ours("application")
    assert (run.returncode, run.stderr.splitlines()[0]) == (2, "devwidget: there is no script application")


@pytest.mark.parametrize(
    "ending",
    ["sys.stdout = sys.stderr = None", "del sys.stdout", "sys.stdout.close()", "sys.stderr.close()"],
)
def test_the_report_comes_whatever_a_program_leaves_of_its_streams(ending: str, ours: Run, tmp_path: pathlib.Path) -> None:
    write(tmp_path, f"import sys, torch\nprint(torch.ones(2).sum().item())\n{ending}\n")
    run = ours("train.py")
    assert (run.stdout, run.returncode, "Error" in run.stderr) == ("2.0\n", 0, False)
    assert ("Trace: " in run.stderr) == ("sys.stderr.close" not in ending)
