"""What holds a job up: one collective, drawn once, and for whom everybody waits."""

import dataclasses

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.rules.over_ranks import judge_cluster
from devwidget.extras.ranks.views.job import find_held
from tests.extras.ranks.records.made_up import LOADS, NOW, STEP, held_up


def judged(**how: int) -> Cluster:
    return judge_cluster(merge(held_up(**how), NOW))


def test_of_sixty_four_ranks_one_is_named_and_stands_first():
    job = judged()
    assert [finding.kind for finding in job.findings] == ["absent-from-collective"]
    (held,) = find_held(job)
    assert (held.collective.kind, held.collective.sequence, held.came) == ("all_gather", 961, 7)
    assert [(row.role, row.site, row.seconds) for row in held.rows] == [
        ("absent", LOADS, 0.0), ("waiting", STEP, 43.0), ("behind", STEP, 42.0),
    ]  # fmt: skip
    numbers = [sum(last - first + 1 for first, last in row.ranks) for row in held.rows]
    assert (numbers, held.rows[0].first) == ([1, 7, 56], 37)


def test_a_rank_of_which_nothing_is_known_is_not_drawn_as_absent():
    heard = [each for each in held_up(nodes=2, guilty=5) if each.number != 5]
    (held,) = find_held(judge_cluster(merge(heard, NOW)))
    assert [(row.role, row.first) for row in held.rows] == [("unknown", 5), ("waiting", 13), ("behind", 0)]


def test_a_job_in_which_nobody_waits_has_nothing_to_draw():
    job = judged(nodes=2, guilty=5)
    assert find_held(dataclasses.replace(job, findings=())) == ()
