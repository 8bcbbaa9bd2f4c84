"""Recordings and traces beside threads and processes that train: nothing dies, and every loss is that of the training alone."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANKS = ("-m", "tests.extras.ranks.forked", "4", str(ROOT / "tests" / "extras" / "ranks" / "beside_ranks.py"))


def run(*arguments: str) -> str:
    """What a program prints, in a process of its own, which may die; it has failed if that ends with anything but 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]
    print(ended.stdout)
    return ended.stdout


FOR_MINUTES = pytest.param("300", marks=pytest.mark.fuzz)


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [pytest.param("5", marks=pytest.mark.slow), FOR_MINUTES])
@pytest.mark.parametrize("lively", [(), ("lively",)], ids=["training", "lively"])
def test_threads_that_train_are_as_alone_beside_traces_and_recordings(lively: tuple[str, ...], seconds: str) -> None:
    assert "0 troubles" in run("-m", "tests.beside_threads", seconds, *lively)


@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [pytest.param("5", marks=pytest.mark.slow), FOR_MINUTES])
def test_ranks_that_train_are_as_alone_beside_traces_and_recordings_in_one_of_them(seconds: str) -> None:
    assert run(*RANKS, seconds).count(" 0 differ") == 4
