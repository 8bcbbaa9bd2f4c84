"""Real jobs: four ways to train are told as they are, states and faults are told apart, and nobody is harmed."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator

import pytest

import devwidget
from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.rank import LocalTensor
from tests.extras.ranks.jobs import Job, four_processes, torchrun, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]

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
WAYS = tuple(PLACEMENTS)
LOCAL = {"ddp": (32, 16), "fsdp2": (8, 16), "hsdp": (16, 16), "tp": (8, 16)}
"""What a rank holds of the 32 rows of `up.weight`."""
AXES = {"ddp": ["rank"], "fsdp2": ["rank"], "hsdp": ["replicate", "shard"], "tp": ["dp", "tp"]}
STEPS = "40"
"""Of each way to train, whose losses are compared."""


def check_told(cluster: Cluster, way: str) -> None:
    """All four ranks answer, nothing is found, and each placement is as it is."""
    assert [rank.state for rank in cluster.ranks] == ["answered"] * 4
    assert cluster.findings == (), [finding.headline for finding in cluster.findings]
    assert [axis.name for axis in cluster.axes] == AXES[way]
    assert [column.ranks for column in lay_out_columns(cluster).each] == [(0, 1, 2, 3)]
    held = tensors(cluster)
    assert {path: held[path].placement for path in PLACEMENTS[way]} == PLACEMENTS[way]
    (up,) = (tensor for path, tensor in held.items() if path.endswith("up.weight"))
    assert (up.shape, up.local_shape) == ((32, 16), LOCAL[way])


def tensors(cluster: Cluster) -> dict[str, LocalTensor]:
    """Of the ranks of the first column, by path."""
    columns = lay_out_columns(cluster)
    return {
        columns.tensor_path(module, tensor.name): tensor for module, holding in columns.each[0].holdings for tensor in holding
    }


@pytest.fixture(scope="module")
def asked() -> tuple[dict[str, list[Cluster]], str]:
    """What four ranks said while they trained in each of four ways, and their losses."""
    # On a busy machine torch aborts a rank of some hundred jobs: "terminate called without an active exception".
    for _ in range(2):
        with four_processes(",".join(WAYS), STEPS) as job:
            told = {way: told_of(job, way) for way in WAYS}
            losses, _ = job.process.communicate()
        if job.process.returncode == 0:
            break
    assert job.process.returncode == 0
    return told, losses


def told_of(job: Job, way: str) -> list[Cluster]:
    """They are asked all the time; what counts is what they say when each has trained for three steps."""
    wait_for(lambda: ask_in_vain(job) or is_training(job, way), pause=0.0)
    told = [devwidget.ranks(job.folder) for _ in range(5)]
    see_enough(job, way)
    return told


def ask_in_vain(job: Job) -> None:
    with contextlib.suppress(devwidget.DevwidgetError):  # nobody is there yet
        devwidget.ranks(job.folder)


def is_training(job: Job, way: str) -> bool:
    return len(list(job.folder.glob(f"ready-{way}-*"))) == 4


def see_enough(job: Job, way: str) -> None:
    (job.folder / f"enough-{way}").touch()


@pytest.mark.parametrize("way", WAYS)
def test_a_healthy_job_is_told_as_it_is(asked, way: str):
    told = asked[0][way]
    for cluster in told:
        check_told(cluster, way)
    assert all(a.step <= b.step for a, b in zip(told[0].ranks, told[-1].ranks, strict=True))
    assert told[0].ranks[0].step >= 3


def test_losses_are_those_of_a_job_that_nobody_asks(asked):
    told, served = asked
    with four_processes(",".join(WAYS), STEPS, SERVE="0") as job:
        for way in WAYS:
            see_enough(job, way)
        alone, _ = job.process.communicate()
    assert len(alone.split()) == len(WAYS) * int(STEPS)
    assert served == alone
    assert any(cluster.ranks[0].step < int(STEPS) for clusters in told.values() for cluster in clusters)  # some were in time


@pytest.fixture(scope="module")
def states() -> Iterator[Cluster]:
    """Rank 0 waits in a collective, 1 was killed, 2 is busy with Python locked, 3 is stopped."""
    with four_processes("states", "3") as job:
        wait_for(lambda: is_training(job, "states"))
        wait_for(lambda: has_come_to_it(devwidget.ranks(job.folder, patience=0.2)))
        job.signal(1, signal.SIGKILL)
        job.signal(3, signal.SIGSTOP)
        yield wait_for(lambda: settled(devwidget.ranks(job.folder, patience=0.2)))


def has_come_to_it(cluster: Cluster) -> bool:
    """Rank 0 waits for the pair, not for a rank that is still on its way, and rank 2 is busy."""
    waits = cluster.ranks[0].said.collective
    return waits is not None and waits.ranks == (0, 2) and cluster.ranks[2].state == "busy"


def settled(cluster: Cluster) -> Cluster | None:
    """A signal takes a moment to arrive."""
    return cluster if {cluster.ranks[1].state, cluster.ranks[3].state} == {"dead", "stopped"} else None


def test_hung_dead_busy_and_stopped_ranks_are_told_apart(states: Cluster):
    assert [rank.state for rank in states.ranks] == ["hung", "dead", "busy", "stopped"]
    assert [rank.said.pid > 0 for rank in states.ranks] == [True] * 4
    assert states.ranks[2].note == "its process is alive and holds the GIL"


def test_a_hung_rank_says_where_and_in_what_it_waits(states: Cluster):
    hung = states.ranks[0].said
    assert hung.collective is not None
    assert (hung.collective.kind, hung.collective.bytes, hung.collective.ranks) == ("all_reduce", 32, (0, 2))
    stack = hung.stack
    assert any(site.text == "dist.all_reduce(torch.ones(8), group=pair)" for site in stack)


def test_who_keeps_a_hung_rank_waiting_is_named(states: Cluster):
    found = [finding for finding in states.findings if finding.kind == "absent-from-collective"]
    assert [finding.headline.endswith("which rank 2 has not reached") for finding in found] == [True]


def test_wrong_dtype_wrong_device_and_another_step_are_named():
    """On virtual GPUs: rank 2 has left a layer on the GPU of rank 0."""
    with four_processes("different", "0") as job:
        wait_for(lambda: is_training(job, "different"))
        cluster = wait_for(lambda: with_steps(devwidget.ranks(job.folder)))
    assert {rank.state for rank in cluster.ranks} == {"answered"}
    told = {finding.headline for finding in cluster.findings}
    assert "`frozen.weight` differs in dtype: bfloat16 on rank 1, float32 on ranks 0, 2-3" in told
    assert "`frozen.weight` differs in device: cuda:0 on rank 2, its own device on ranks 0-1, 3" in told
    assert any(re.fullmatch(r"rank 2 uses up to [\d,]+ bytes on `cuda:0`, the GPU of rank 0", each) for each in told)
    assert [finding.kind for finding in cluster.findings].count("step-disagrees") == 1


def with_steps(cluster: Cluster) -> Cluster | None:
    """Whether a rank has more steps is told when all have begun the same collectives at one moment."""
    return cluster if any(finding.kind == "step-disagrees" for finding in cluster.findings) else None


def test_the_command_line_serves_a_job_without_a_changed_line():
    with torchrun(4, "ddp", STEPS, module=["-m", "devwidget", "run"], SERVE="0") as job:
        wait_for(lambda: is_training(job, "ddp"))
        cluster = devwidget.ranks(job.folder)
    assert [rank.state for rank in cluster.ranks] == ["answered"] * 4
    assert cluster.ranks[0].said.model.modules[0].wrapper == "DistributedDataParallel"
