"""Four engines of ipyparallel are ranks, also while they are busy."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

import devwidget
from tests.distributed.jobs import ROOT, wait_for
from tests.distributed.ways import WAYS, check_told

ipyparallel = pytest.importorskip("ipyparallel")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_JOIN = """
import os, sys
sys.path.insert(0, {root!r})
os.environ.update(RANK=str({rank}), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}", DEVWIDGET_RANKS={folder!r})
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
from tests.distributed.training import Training
"""
_TRAIN = "training = Training({way!r}); [training.step() for _ in range(3)]"
_MEET = "torch.distributed.all_reduce(torch.ones(1))"


@pytest.fixture(scope="module")
def view() -> Iterator[Any]:
    """Four engines that have joined one process group; they begin to answer when they are asked first."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ranks-")) + "/job"
        client = stack.enter_context(ipyparallel.Cluster(n=4, log_level=40))
        facts = {"root": str(ROOT), "port": _port(), "folder": folder}
        for each in [client[rank].execute(_JOIN.format(rank=rank, **facts), block=False) for rank in range(4)]:
            each.get(120)
        yield client[:]


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("way", WAYS)
def test_engines_are_told_as_they_are(view: Any, way: str):
    view.execute(_TRAIN.format(way=way), block=True)
    told = devwidget.ranks(view)
    check_told(told, way)
    assert len({rank.step for rank in told.ranks}) == 1


def test_engines_answer_while_they_wait_in_a_collective(view: Any):
    waits = [view.client[rank].execute(_MEET, block=False) for rank in (0, 1, 2)]
    hanging = wait_for(lambda: _three_hang(devwidget.ranks(view, patience=0.0)))
    assert "which rank 3 has not begun" in hanging.findings[0].headline
    view.client[3].execute(_MEET, block=True)
    for each in waits:
        each.get(60)


def _three_hang(told: Any) -> Any:
    return told if [rank.state for rank in told.ranks] == ["hung"] * 3 + ["answered"] else None
