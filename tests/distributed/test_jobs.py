"""Real jobs: four ways to train are told as they are, seven faults are told apart, and nobody is harmed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

import devwidget
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.runs import in_words
from tests.distributed.jobs import Job, four_processes, torchrun, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FOR_EVER = "1000000"
PLACEMENTS = {
    "ddp": {"module.up.weight": ""},
    "fsdp2": {"up.weight": "Shard(0) on rank", "frozen.weight": ""},
    "hsdp": {
        "up.weight": "Replicate on replicate, Shard(0) on shard",
        "frozen.weight": "Replicate on replicate, Shard(0) on shard",
    },
    "tp": {
        "up.weight": "Shard(0, strided 2) on dp, Shard(0) on tp",
        "down.weight": "Shard(0) on dp, Shard(1) on tp",
        "down.bias": "Shard(0) on dp, Replicate on tp",
    },
}
LOCAL = {"ddp": (32, 16), "fsdp2": (8, 16), "hsdp": (16, 16), "tp": (8, 16)}
"""What a rank holds of the 32 rows of `up.weight`."""
AXES = {"ddp": ["rank"], "fsdp2": ["rank"], "hsdp": ["replicate", "shard"], "tp": ["dp", "tp"]}


def is_training(job: Job) -> bool:
    return len(list(job.folder.glob("ready-*"))) == 4


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_healthy_job_is_told_as_it_is(kind: str):
    with torchrun(4, kind, FOR_EVER) as job:
        wait_for(lambda: is_training(job))
        told = [devwidget.ranks(job.folder) for _ in range(5)]
    for cluster in told:
        assert [rank.state for rank in cluster.ranks] == ["answered"] * 4
        assert cluster.findings == ()
        assert [axis.name for axis in cluster.axes] == AXES[kind]
        assert [in_words(placement.ranks) for placement in cluster.placements] == ["ranks 0-3"]
        held = tensors(cluster)
        assert {path: held[path].placement for path in PLACEMENTS[kind]} == PLACEMENTS[kind]
        (up,) = (tensor for path, tensor in held.items() if path.endswith("up.weight"))
        assert (up.shape, up.local_shape) == ((32, 16), LOCAL[kind])
    assert all(a.step <= b.step for a, b in zip(told[0].ranks, told[-1].ranks, strict=True))
    assert told[0].ranks[0].step >= 3


def tensors(cluster: Cluster) -> dict[str, object]:
    found = {}
    for at, module in enumerate(cluster.modules):
        for tensor in cluster.holding(0, at) or ():
            found[f"{module.path}.{tensor.name}"] = tensor
    return found


@pytest.fixture(scope="module")
def states() -> Iterator[Cluster]:
    """Rank 0 waits in a collective, 1 was killed, 2 is busy with Python locked, 3 is stopped."""
    with four_processes("states", FOR_EVER) as job:
        wait_for(lambda: is_training(job))
        wait_for(lambda: has_come_to_it(devwidget.ranks(job.folder, patience=0.2)))
        job.signal(1, signal.SIGKILL)
        job.signal(3, signal.SIGSTOP)
        yield wait_for(lambda: settled(devwidget.ranks(job.folder, patience=0.2)))


def has_come_to_it(cluster: Cluster) -> bool:
    """Rank 0 waits for the pair, not for a rank that is still on its way, and rank 2 is busy."""
    waits = cluster.ranks[0].collective
    return waits is not None and waits.ranks == (0, 2) and cluster.ranks[2].state == "busy"


def settled(cluster: Cluster) -> Cluster | None:
    """A signal takes a moment to arrive."""
    return cluster if {cluster.ranks[1].state, cluster.ranks[3].state} == {"dead", "stopped"} else None


def test_hung_dead_busy_and_stopped_ranks_are_told_apart(states: Cluster):
    assert [rank.state for rank in states.ranks] == ["hung", "dead", "busy", "stopped"]
    assert [rank.pid > 0 for rank in states.ranks] == [True] * 4
    assert states.ranks[2].note == "its process is alive, and holds Python's lock"


def test_a_hung_rank_says_where_and_in_what_it_waits(states: Cluster):
    hung = states.ranks[0]
    assert hung.collective is not None
    assert (hung.collective.kind, hung.collective.bytes, hung.collective.ranks) == ("all_reduce", 32, (0, 2))
    stack = states.stacks[hung.stack]
    assert any(site.text == "dist.all_reduce(torch.ones(8), group=pair)" for site in stack)


def test_who_keeps_a_hung_rank_waiting_is_named(states: Cluster):
    found = [finding for finding in states.findings if finding.kind == "absent-from-collective"]
    assert [finding.headline.endswith("which rank 2 has not begun") for finding in found] == [True]


def test_wrong_dtype_wrong_device_and_another_step_are_named():
    with four_processes("different", FOR_EVER) as job:
        wait_for(lambda: is_training(job))
        cluster = wait_for(lambda: with_steps(devwidget.ranks(job.folder)))
    assert {rank.state for rank in cluster.ranks} == {"answered"}
    told = {finding.headline for finding in cluster.findings}
    assert "`frozen.weight` differs in dtype: bfloat16 on rank 1, float32 on ranks 0, 2-3" in told
    assert "`frozen.weight` differs in device: meta on rank 2, its own on ranks 0-1, 3" in told
    assert [finding.kind for finding in cluster.findings].count("step-disagrees") == 1


def with_steps(cluster: Cluster) -> Cluster | None:
    """Whether a rank has more steps is told when all have begun the same collectives at one moment."""
    return cluster if any(finding.kind == "step-disagrees" for finding in cluster.findings) else None


def test_losses_are_those_of_a_job_that_nobody_asks():
    with torchrun(2, "ddp", "60", SERVE="0") as job:
        alone, _ = job.process.communicate()
    with torchrun(2, "ddp", "60") as job:
        asked = threading.Event()
        thread = threading.Thread(target=_ask_again_and_again, args=(job, asked))
        thread.start()
        served, _ = job.process.communicate()
        asked.set()
        thread.join()
    assert len(alone.split()) == 60
    assert served == alone


def _ask_again_and_again(job: Job, done: threading.Event) -> None:
    while not done.is_set():
        with contextlib.suppress(devwidget.DevwidgetError):  # nobody is there yet, or any more
            devwidget.ranks(job.folder)


def test_the_command_line_serves_a_job_without_a_changed_line():
    with torchrun(4, "ddp", FOR_EVER, module=["-m", "devwidget", "run"], SERVE="0") as job:
        wait_for(lambda: is_training(job))
        cluster = devwidget.ranks(job.folder)
    assert [rank.state for rank in cluster.ranks] == ["answered"] * 4
    assert cluster.modules[0].wrapper == "DistributedDataParallel"
