"""Every block of docs/ranks.md runs: the program as a real job, what asks it, the launchers, the plan."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import devwidget
from devwidget.capture import torch_internals
from devwidget.cli.main import _build_parser
from devwidget.extras.ranks import ask_ranks, commands
from tests.extras.ranks.jobs import running, wait_for

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ranks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
RANK = 'import os; print(f\'rank {os.environ["RANK"]} of {os.environ["WORLD_SIZE"]}\', flush=True)'


def block(kind, *words):
    (text,) = [text for of, text in BLOCKS if of == kind and all(word in text for word in words)]
    return text


TRAINING, ASKING = block("python", "serve(model)"), block("python", "devwidget.ranks()")
TORCHRUN, SCRIPT, LOOK, ACCELERATE, DIAGNOSE = (
    block("bash", word) for word in ("torchrun", "SBATCH", "--overlap", "accelerate", "diagnose")
)
STEP, STEPPED, TOLD = block("python", "record(path="), block("python", 'ranks("one-step")'), block("text", "one step of")
PLAN, PLANNED = block("python", "devwidget.plan("), block("text", "Plan:")


def test_no_block_is_forgotten_here():
    known = [
        TRAINING,
        ASKING,
        TORCHRUN,
        SCRIPT,
        LOOK,
        ACCELERATE,
        DIAGNOSE,
        PLAN,
        PLANNED,
        STEP,
        STEPPED,
        TOLD,
    ]
    assert [text for _, text in BLOCKS if text not in known] == []


def answered(folder):
    """Whether two ranks train."""
    try:
        return [rank.step > 0 for rank in devwidget.ranks(folder).ranks] == [True, True]
    except devwidget.DevwidgetError:  # nobody there yet
        return False


@pytest.mark.slow
def test_the_program_is_a_job_that_answers_and_the_blocks_that_ask_it_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    _, *options = TORCHRUN.split()
    with running(["-m", "torch.distributed.run", *options]) as job:
        wait_for(lambda: answered(job.folder))
        monkeypatch.setattr(ask_ranks, "owner_folder", lambda: job.folder.parent)
        exec(ASKING, {})
        assert "2 ranks · 2 answered · 1 distinct placement" in capsys.readouterr().out
        assert len(devwidget.load("job.json").ranks) == 2
        assert "<!DOCTYPE html>" in (tmp_path / "job.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_step_of_two_ranks_prints_as_the_page_shows(tmp_path, monkeypatch, capsys):
    (tmp_path / "step.py").write_text(STEP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with running(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "step.py"]) as job:
        assert job.process.wait() == 0
    exec(STEPPED, {"devwidget": devwidget})
    assert capsys.readouterr().out == TOLD


def ran(text, folder, **environ):
    """What a block of shell prints, where `train.py` says which rank it is, and `srun` tells its words."""
    (folder / "train.py").write_text(RANK, encoding="utf-8")
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
    assert (options.command, [str(each) for each in options.source]) == (commands.diagnose_ranks, ["/shared/job"])


def test_a_look_at_a_node_asks_the_folder_of_the_job(tmp_path):
    *_, program = ran(LOOK, tmp_path, SLURM_JOB_ID="7", DEVWIDGET_RANKS="").partition(" -c ")
    assert program == "import devwidget; print(devwidget.ranks('/tmp/ranks-7'))\n"


@pytest.mark.slow
def test_accelerate_starts_as_many_ranks(tmp_path):
    pytest.importorskip("accelerate")
    said = ran(ACCELERATE, tmp_path)
    assert sorted(re.findall(r"rank \d of 2", said)) == ["rank 0 of 2", "rank 1 of 2"]  # both write into one line at times


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith(torch_internals.TESTED), reason="numbers are those of the pinned torch")
def test_the_plan_is_the_one_that_is_shown(capsys):
    exec(PLAN, {})
    assert capsys.readouterr().out == PLANNED
