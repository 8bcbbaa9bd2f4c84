"""corrupted-copy: what arrives on the other GPU is not what was sent."""

import dataclasses

from devwidget.records.trace import CopyCheck, Trace
from devwidget.rules.registry import judge
from tests.rules.builders import GPU0, GPU1, findings, is_silent, site

KIND = "corrupted-copy"
CLEAN = CopyCheck(1, GPU0, GPU1, 64, "head", "forward", site("h = h.to('cuda:1')", 14), 3, 0, "yes")
DAMAGED = dataclasses.replace(CLEAN, number=2, module="tail", site=site("h = h.to('cuda:1')", 18), wrong=2)


def test_a_pair_whose_copies_arrive_changed_is_one_finding(golden):
    (found,) = findings(copy_checks=(CLEAN, DAMAGED, dataclasses.replace(DAMAGED, number=3)))
    golden(f"{KIND}.txt", found)


def test_further_modules_with_damaged_copies_are_named():
    (found,) = findings(copy_checks=(DAMAGED, dataclasses.replace(DAMAGED, number=3, module="head")))
    assert (found.module, found.also) == ("tail", ("head",))


def test_each_direction_is_a_finding():
    back = dataclasses.replace(DAMAGED, source=GPU1, target=GPU0)
    assert len(findings(copy_checks=(DAMAGED, back))) == 2


def test_copies_that_arrive_as_sent_are_silent():
    assert is_silent(KIND, copy_checks=(CLEAN,))


def test_a_check_that_was_not_requested_is_not_listed_as_left_out():
    trace = judge(Trace())
    assert KIND not in (*trace.checked, *(words.partition(":")[0] for words in trace.not_checked))
    assert KIND in judge(Trace(copy_checks=(CLEAN,))).checked
