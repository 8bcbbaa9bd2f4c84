"""Four engines of ipyparallel are ranks, also while they are busy."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import tempfile

import pytest

import devwidget
from tests.distributed.jobs import ROOT

ipyparallel = pytest.importorskip("ipyparallel")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_START = """
import os, sys
sys.path.insert(0, {root!r})
os.environ.update(RANK=str({rank}), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}", DEVWIDGET_RANKS={folder!r})
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
"""


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_engines_are_ranks_and_answer_while_they_are_busy():
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ranks-"))) / "job"
        client = stack.enter_context(ipyparallel.Cluster(n=4, log_level=40))
        view, port = client[:], _port()
        started = [
            client[rank].execute(_START.format(root=str(ROOT), rank=rank, port=port, folder=str(folder)), block=False)
            for rank in range(4)
        ]
        for each in started:
            each.get(120)
        first = devwidget.ranks(view)
        assert [rank.state for rank in first.ranks] == ["answered"] * 4
        assert [placement.ranks for placement in first.placements] == [((0, 3),)]
        assert first.modules[0].wrapper == "DistributedDataParallel"
        assert first.findings == ()
        waits = [client[rank].execute("torch.distributed.all_reduce(torch.ones(1))", block=False) for rank in (0, 1, 2)]
        hanging = devwidget.ranks(view, patience=0.0)
        while [rank.state for rank in hanging.ranks] != ["hung"] * 3 + ["answered"]:
            hanging = devwidget.ranks(view, patience=0.0)
        assert "which rank 3 has not begun" in hanging.findings[0].headline
        client[3].execute("torch.distributed.all_reduce(torch.ones(1))", block=True)
        for each in waits:
            each.get(60)
