"""The watched runs of a job: the slow rank, and the findings of each rank."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.watch.records.job import SlowRank, WatchedJob
from devwidget.extras.watch.records.run import LineTime
from devwidget.extras.watch.words.run import PART_NAMES, verdict_words
from devwidget.language.speaking import said, say
from devwidget.report.page.draw_page import shows
from devwidget.report.report_parts import Part, Sentence
from devwidget.report.style.units import count_words, format_seconds
from devwidget.report.style.words import first_line, site_words
from devwidget.report.text.finding_text import finding_parts


@shows(WatchedJob)
def job_parts(job: WatchedJob) -> Iterator[Part]:
    """Yield the verdict, the slow rank, then each rank with its findings."""
    yield Sentence(say("Watched runs of {ranks}", ranks=count_words(len(job.ranks), "rank")), "verdict")
    if (slow := job.slow_rank) is not None:
        yield Sentence(slow_words(slow), "over")
        if slow.line is not None:
            yield Sentence(line_words(slow.line))
    for rank, run in zip(job.ranks, job.runs, strict=True):
        yield Sentence(say("rank {rank}: {words}", rank=rank, words=verdict_words(run)))
        for finding in run.findings:
            yield from finding_parts(finding)


def line_words(line: LineTime) -> str:
    """Return `50 ms per step are spent at train.py:25  time.sleep(0.05)`."""
    place = "  ".join(filter(None, (site_words(line.site), first_line(line.site))))
    return say("{seconds} per step are spent at {place}", seconds=format_seconds(line.seconds), place=place)


def slow_words(slow: SlowRank) -> str:
    """Return `the others wait for rank 2: forward takes 31 ms per step there, 2 ms on the others`."""
    own, others = format_seconds(slow.seconds), format_seconds(slow.others)
    facts = {"rank": slow.rank, "part": said(PART_NAMES[slow.part]), "own": own, "others": others}
    return say("the others wait for rank {rank}: {part} takes {own} per step there, {others} on the others", **facts)
