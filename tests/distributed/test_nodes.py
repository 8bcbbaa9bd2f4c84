"""Jobs over several nodes: each of twelve faults accuses the guilty rank and no other, live and from files after the end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import devwidget
from devwidget.records.finding import Finding
from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.traced_steps import numbers_in
from tests.distributed.faulty import FAULTS
from tests.distributed.jobs import wait_for
from tests.distributed.nodes import OWN_FOLDER, ROOT, Nodes, Starter, can_have_nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not can_have_nodes(), reason="needs root, for networks and process numbers of their own"),
]

NODES, RANKS, GUILTY, EVERY, PATIENCE, SOON = 2, 2, 3, 0.3, 1.0, 3.0
AT_ONCE = ("loader", "collective", "skipped", "killed", "raised", "stopped")
"""Faults that strike in one moment; the others are there from the beginning, and are told when enough steps are known."""
LIVE_ON = tuple(fault for fault in FAULTS if fault not in ("skipped", "killed", "raised"))
"""Faults of which not all ranks end: where nothing is shared, somebody has to be left who answers."""
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


def run_on(job: Nodes, rank: int, *asked: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the node of a rank, which sees the processes and the network of that node alone."""
    there = ["nsenter", "-t", str(job.pids[rank]), "--mount", "--uts", "--pid", "--net"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environ}
    return subprocess.run([*there, sys.executable, *asked], env=settings, capture_output=True, text=True, timeout=100)


def diagnose_on(job: Nodes, rank: int) -> tuple[int, str]:
    """What the command says on the node of a rank."""
    told = run_on(job, rank, "-m", "devwidget", "diagnose", str(job.folder), "--patience", str(PATIENCE))
    return told.returncode, told.stdout


_ASK = "import sys, devwidget; devwidget.ranks(sys.argv[1], patience=float(sys.argv[2])).save(sys.argv[3])"


def ask_on(job: Nodes, rank: int, **environ: str) -> Cluster:
    """What is heard on the node of a rank whose nodes have a folder each."""
    path = job.folder.with_name(f"heard-{rank}.json")
    key = {"DEVWIDGET_KEY": f"{job.folder}.key"}
    told = run_on(job, rank, "-c", _ASK, OWN_FOLDER, str(PATIENCE), str(path), **key | environ)
    assert told.returncode == 0, told.stderr
    return devwidget.load(path)


def test_nodes_of_separate_folders_hear_each_other_by_their_relays(starter: Starter):
    with starter.job(NODES, RANKS, "loader", GUILTY, 0.0, apart=True) as job:
        wait_for((job.folder / "struck").exists)
        for rank in (0, 2):
            cluster = wait_for(lambda rank=rank: told_of(heard := ask_on(job, rank)) and heard)
            assert [(each.host, each.state == "unknown") for each in cluster.ranks] == [
                ("node0", False), ("node0", False), ("node1", False), ("node1", False),
            ]  # fmt: skip
            check_accused(cluster)
        other = f"{job.folder}.other"
        pathlib.Path(other).write_text("0" * 64, encoding="ascii")
        pathlib.Path(other).chmod(0o600)
        strange = ask_on(job, 0, DEVWIDGET_KEY=other)
        assert [each.state == "unknown" for each in strange.ranks] == [False, False, True, True]
        assert strange.ranks[3].note.startswith("node1 has another key")
        relay = relay_of(job, 0, 1)
        job.signal(signal.SIGKILL, relay)
        after = wait_for(lambda: (heard := ask_on(job, 2)).ranks[relay].state == "dead" and heard)
        assert [each.state == "unknown" for each in after.ranks] == [False] * 4  # the other rank of that node answers for both


def relay_of(job: Nodes, *ranks: int) -> int:
    """The rank that answers for the node of some."""
    locks = pathlib.Path("/proc/locks").read_text()
    (found,) = (rank for rank in ranks if re.search(rf" POSIX +ADVISORY +WRITE {job.pids[rank]} ", locks))
    return found


def test_each_node_names_a_stopped_rank_and_its_own_knows_that_it_is_stopped(starter: Starter):
    with starter.job(NODES, RANKS, "stopped", GUILTY, EVERY) as job:
        ask_until(job)
        for rank, words in ((0, "whether rank 3 has begun it is not known here"), (2, "rank 3 is stopped by a signal")):
            status, text = diagnose_on(job, rank)
            assert (status, words in text) == (1, True), text


@contextlib.contextmanager
def asking_on(job: Nodes, rank: int) -> Iterator[Callable[[], Cluster | None]]:
    """Ask again and again on the node of a rank, by one Python there."""
    there = ["nsenter", "-t", str(job.pids[rank]), "--mount", "--uts", "--pid", "--net"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DEVWIDGET_KEY": f"{job.folder}.key"}
    asker = subprocess.Popen(
        [*there, sys.executable, "-m", "tests.distributed.asker", OWN_FOLDER, str(PATIENCE), f"{job.folder}-heard"],
        env=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert asker.stdin is not None
    assert asker.stdout is not None

    def ask() -> Cluster | None:
        print("ask", file=asker.stdin, flush=True)
        path = asker.stdout.readline().strip()
        return devwidget.load(path) if path else None

    try:
        yield ask
    finally:
        asker.communicate("", timeout=100)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", FAULTS)
def test_over_eight_nodes_of_four_ranks_each_fault_accuses_the_guilty_rank(
    starter: Starter, capsys: pytest.CaptureFixture[str], fault: str
):
    """From a folder that all nodes share, while the job is there and after its end."""
    with starter.job(8, 4, fault, 13, 1.0) as job:
        live = ask_until(job)
        after = told_after(job, fault)
        time.sleep(0 if fault in ENDS_ITSELF else 2 * PATIENCE)
        job.end(stopped=13 if fault == "stopped" else -1)
        over = devwidget.ranks(job.folder, patience=PATIENCE)
    with capsys.disabled():
        print(f"\n{fault}: {accusations(live)} {after:.1f} s after it struck; over: {accusations(over)}")
    assert {ranks for _, ranks in accusations(live)} == {(13,)}, str(live)
    assert {ranks for _, ranks in accusations(over)} == {(13,)}, str(over)
    assert after < SOON


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", LIVE_ON)
def test_over_eight_nodes_that_share_nothing_any_node_accuses_the_guilty_rank(
    starter: Starter, capsys: pytest.CaptureFixture[str], fault: str
):
    """Through the relays of the nodes, from that of the guilty rank and from another."""
    with starter.job(8, 4, fault, 13, 0.0, apart=True) as job, asking_on(job, 0) as ask, asking_on(job, 14) as ask_beside:
        wait_for(lambda: (job.folder / "struck").exists() or all_train(ask()))
        live = wait_for(lambda: (cluster := ask()) is not None and told_of(cluster) and cluster)
        after = told_after(job, fault)
        beside = wait_for(lambda: (cluster := ask_beside()) is not None and told_of(cluster) and cluster)
    with capsys.disabled():
        print(f"\n{fault}: {accusations(live)} {after:.1f} s after it struck; on its own node: {accusations(beside)}")
    assert {ranks for _, ranks in accusations(live)} == {(13,)}, str(live)
    assert {ranks for _, ranks in accusations(beside)} == {(13,)}, str(beside)
    assert after < SOON


def accusations(cluster: Cluster) -> list[tuple[str, tuple[int, ...]]]:
    """Each finding of a cluster and the ranks that it accuses."""
    return [(finding.kind, tuple(sorted(accused(finding)))) for finding in told_of(cluster)]


def told_after(job: Nodes, fault: str) -> float:
    """Seconds since a fault struck that strikes in one moment; 0 for others."""
    return time.time() - (job.folder / "struck").stat().st_mtime if fault in AT_ONCE else 0.0
