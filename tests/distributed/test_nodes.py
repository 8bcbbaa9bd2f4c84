"""Jobs over several nodes: each of twelve faults accuses the guilty rank and no other, live and from files after the end."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

import devwidget
from devwidget.records.finding import Finding
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.traced_steps import numbers_in
from tests.distributed.faulty import FAULTS
from tests.distributed.jobs import wait_for
from tests.distributed.nodes import Nodes, Starter, can_have_nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not can_have_nodes(), reason="needs root, for networks and process numbers of their own"),
]

NODES, RANKS, GUILTY, EVERY, PATIENCE = 2, 2, 3, 0.3, 1.0
ENDS_ITSELF = frozenset({"killed", "raised"})


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    starter.close()


def accused(finding: Finding) -> set[int]:
    """The ranks of which a finding says that they are absent, have ended, or are unlike most others."""
    absent = [claim for claim in finding.claims if claim.kind == "absent"]
    if absent:
        return set(absent[0].ranks)
    (ranks,) = re.findall(r"ranks? (\d+(?:-\d+)?(?:, \d+(?:-\d+)?(?![.\d]))*)", finding.headline)[:1]
    return {n for part in ranks.split(", ") for n in numbers_in(((int(part.split("-")[0]), int(part.split("-")[-1])),))}


def told_of(cluster: Cluster) -> list[Finding]:
    return [finding for finding in cluster.findings if finding.severity != "info"]


def ask_until(job: Nodes) -> Cluster:
    """What is found, as soon as all have begun to train and anything is."""
    wait_for(lambda: (job.folder / "struck").exists() or all_train(ask(job)))
    return wait_for(lambda: (cluster := ask(job)) is not None and told_of(cluster) and cluster)


def ask(job: Nodes) -> Cluster | None:
    return heard(lambda: devwidget.ranks(job.folder, patience=PATIENCE))


def all_train(cluster: Cluster | None) -> bool:
    return cluster is not None and all(rank.step >= 2 for rank in cluster.ranks)


def heard(ask: Callable[[], Cluster]) -> Cluster | None:
    try:
        return ask()
    except devwidget.DevwidgetError:  # nobody is there yet
        return None


def check_accused(cluster: Cluster) -> None:
    assert [accused(finding) for finding in told_of(cluster)] == [{GUILTY}] * len(told_of(cluster)), str(cluster)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_accuses_the_guilty_rank_and_no_other(starter: Starter, fault: str):
    with starter.job(NODES, RANKS, fault, GUILTY, EVERY) as job:
        check_accused(ask_until(job))
        time.sleep(0 if fault in ENDS_ITSELF else 2 * PATIENCE)
        job.end(stopped=GUILTY if fault == "stopped" else -1)
        check_accused(over := devwidget.ranks(job.folder, patience=PATIENCE))
        assert told_of(over)


def test_a_job_without_a_fault_ends_in_order(starter: Starter):
    with starter.job(NODES, RANKS, "none", -1, 0.0) as job:
        wait_for(lambda: set(states_of(job)) == {"ended"})
        cluster = devwidget.ranks(job.folder)
        assert told_of(cluster) == []
        assert [rank.host for rank in cluster.ranks] == ["node0", "node0", "node1", "node1"]
        assert sorted(path.name for path in job.folder.iterdir()) == [f"rank-{rank}.json" for rank in range(4)]


def states_of(job: Nodes) -> list[str]:
    cluster = heard(lambda: devwidget.ranks(job.folder))
    if cluster is not None:
        assert told_of(cluster) == [], str(cluster)
    return [rank.state for rank in cluster.ranks] if cluster is not None else ["unknown"]


def test_a_signal_leaves_what_a_rank_held_and_it_dies_by_that_signal(starter: Starter):
    with starter.job(NODES, RANKS, "loader", GUILTY, 0.0) as job:
        ask_until(job)
        job.signal(signal.SIGTERM)
        job.end()
        cluster = devwidget.ranks(job.folder)
    assert [rank.state for rank in cluster.ranks] == ["terminated"] * 4
    assert all(rank.last_word is not None and rank.last_word.error == "SIGTERM" for rank in cluster.ranks)
    assert all(rank.placement >= 0 and rank.stack >= 0 and rank.last for rank in cluster.ranks)
