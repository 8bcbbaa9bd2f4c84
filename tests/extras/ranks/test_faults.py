"""Real jobs with one fault: the guilty rank is accused and no other, while they run and from files after the end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal

import pytest

import devwidget
from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.records.finding import Finding
from tests.extras.ranks.faulty import FAULTS
from tests.extras.ranks.jobs import Job, forked, wait_for

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
PROGRAM = pathlib.Path(__file__).with_name("faulty.py")


def told_of(cluster: Cluster) -> list[Finding]:
    return [finding for finding in cluster.findings if finding.severity != "info"]


def accused(cluster: Cluster) -> set[int]:
    """The ranks of which findings say that they are absent, have ended, or are unlike the others."""
    found: set[int] = set()
    for finding in told_of(cluster):
        absent = [rank for role in finding.roles if role.kind == "absent" for rank in role.ranks]
        alone = re.search(r"rank (\d+)", finding.headline)
        assert absent or alone, finding.headline
        found.update(absent or {int(alone[1])})
    return found


def ask(job: Job) -> Cluster | None:
    try:
        return devwidget.ranks(job.folder)
    except devwidget.DevwidgetError:  # nobody is there yet
        return None


def wait_until_told(job: Job) -> Cluster:
    """What is found, as soon as the fault has struck, or all train and are heard at once."""

    def told() -> Cluster | None:
        cluster = ask(job)
        if cluster is None or not told_of(cluster):
            return None
        if any("not the same on" in each.headline for each in told_of(cluster)):
            return None  # as many ranks have one value as have the other: the others were not asked at that step
        return cluster if (job.folder / "struck").exists() or all(rank.step >= 2 for rank in cluster.ranks) else None

    return wait_for(told)


def end(job: Job, ranks: int) -> Cluster:
    """End all ranks as torchrun's agent does, and ask their files."""
    for pid in [job.pid(rank) for rank in range(ranks)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    job.process.wait()
    return devwidget.ranks(job.folder)


def test_of_two_ranks_the_one_whose_loader_stands_still_is_accused():
    with forked(2, PROGRAM, "loader", "1", "0") as job:
        live = wait_until_told(job)
        over = end(job, 2)
    assert [rank.state for rank in live.ranks] == ["hung", "answered"]
    assert [rank.state for rank in over.ranks] == ["terminated"] * 2
    assert all(rank.said.last_word is not None and rank.said.last_word.error == "SIGTERM" for rank in over.ranks)
    assert accused(live) == accused(over) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_accuses_the_guilty_rank_and_no_other(fault: str):
    with forked(4, PROGRAM, fault, "3", "0.3") as job:
        assert accused(wait_until_told(job)) == {3}
        if fault == "stopped":
            job.signal(3, signal.SIGKILL)
        assert accused(end(job, 4)) == {3}


@pytest.mark.slow
def test_a_job_without_a_fault_ends_in_order():
    with forked(2, PROGRAM, "none", "-1", "0") as job:
        assert job.process.wait() == 0
        cluster = devwidget.ranks(job.folder)
        assert sorted(path.name for path in job.folder.iterdir()) == ["rank-0.json", "rank-1.json"]
    assert [rank.state for rank in cluster.ranks] == ["ended"] * 2
    assert told_of(cluster) == []
