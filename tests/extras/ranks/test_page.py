"""The page on ranks: its programs are real jobs that answer as it shows, and its launchers start them."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import devwidget
from devwidget.cli.main import _build_parser
from devwidget.extras.ranks import ask_ranks, commands
from tests.cells import ipython
from tests.extras.ranks.jobs import running, wait_for
from tests.page_examples import ROOT, Notebook, does_print, examples

PAGE = "how-to/debug-ranks.md"
BASH = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / PAGE).read_text(encoding="utf-8"), re.DOTALL)
TRAINING, ASKING, STEP, STEPPED = examples(PAGE)
TORCHRUN, DIAGNOSE_LAST, DIAGNOSE, TORCHRUN_STEP, SCRIPT, LOOK = BASH


def hangs(folder):
    """Whether a rank waits for one that cannot come."""
    try:
        return "hung" in [rank.state for rank in devwidget.ranks(folder).ranks]
    except devwidget.DevwidgetError:  # no rank answers yet
        return False


@pytest.mark.slow
def test_the_program_hangs_and_the_cell_that_asks_it_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ipython(colors="nocolor") as shell:
        notebook = Notebook(shell, tmp_path)
        notebook.run(TRAINING)
        _, *options = TORCHRUN.split()
        with running(["-m", "torch.distributed.run", *options]) as job:
            wait_for(lambda: hangs(job.folder))
            monkeypatch.setattr(ask_ranks, "owner_folder", lambda: job.folder.parent)
            printed = notebook.run(ASKING)
    assert does_print(printed, ASKING.shown), printed
    assert len(devwidget.load("job.json").ranks) == 2
    assert "<!DOCTYPE html>" in (tmp_path / "job.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_step_of_two_ranks_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *options = TORCHRUN_STEP.split()
    with ipython(colors="nocolor") as shell:
        notebook = Notebook(shell, tmp_path)
        notebook.run(STEP)
        with running(["-m", "torch.distributed.run", *options]) as job:
            assert job.process.wait() == 0
        notebook.run_cell("import devwidget")
        printed = notebook.run(STEPPED)
    assert does_print(printed, STEPPED.shown), printed


def ran(text, folder, **environ):
    """Return what a block of shell prints where `srun` prints its folder and arguments."""
    srun = folder / "srun"
    srun.write_text('#!/bin/sh\necho "$DEVWIDGET_RANKS" "$@"\n', encoding="utf-8")
    srun.chmod(0o700)
    path = os.pathsep.join([str(folder), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    settings = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **environ}
    return subprocess.run(["bash", "-euc", text], cwd=folder, env=settings, capture_output=True, text=True, check=True).stdout


def test_the_script_for_slurm_names_a_folder_of_the_node(tmp_path):
    assert ran(SCRIPT, tmp_path, SLURM_JOB_ID="7") == "/tmp/ranks-7 python train.py\n"


def test_the_verdict_is_asked_by_a_command_that_there_is():
    options = _build_parser().parse_args(DIAGNOSE.split()[3:])
    assert _build_parser().parse_args(DIAGNOSE_LAST.split()[3:]).source == []
    assert (options.command, [str(each) for each in options.source]) == (commands.diagnose_ranks, ["/shared/job"])


def test_a_look_at_a_node_asks_the_folder_of_the_job(tmp_path):
    *_, program = ran(LOOK, tmp_path, SLURM_JOB_ID="7", DEVWIDGET_RANKS="").partition(" -c ")
    assert program == "import devwidget; print(devwidget.ranks('/tmp/ranks-7'))\n"
