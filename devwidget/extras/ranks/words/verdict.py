"""The diagnosis of a job in ten lines: states of its ranks, what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, numbers_of
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.views.job import ORDERLY
from devwidget.extras.ranks.words.cluster import cluster_headline, ranks_by_state
from devwidget.language.speaking import said, say
from devwidget.records.runs import runs_of
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.words import (
    code_word,
    cut_line,
    first_line,
    label_line,
    ranks_words,
    row_words,
    site_words,
    translate_finding,
)

MOST_LINES = 10
_WIDE = 160


def is_well(cluster: Cluster) -> bool:
    """Return whether every rank answered or ended normally, without findings above a hint."""
    states = {rank.state for rank in cluster.ranks}
    return states <= ORDERLY and {finding.severity for finding in cluster.findings} <= {"info"}


def diagnosis_text(cluster: Cluster) -> str:
    """Return the diagnosis; lines beyond the tenth are counted."""
    lines = [cluster_headline(cluster, len(lay_out_columns(cluster).each)), *_finding_lines(cluster), *_state_lines(cluster)]
    if is_well(cluster):
        lines.append(f"no problems found; checked: {', '.join(cluster.checked)}")
    if len(lines) > MOST_LINES:
        more = len(lines) - MOST_LINES + 1
        lines[MOST_LINES - 1 :] = [f"and {more} more lines: print(devwidget.ranks(...))"]
    return text_of(cut_line(line, _WIDE) for line in lines)


def _finding_lines(cluster: Cluster) -> Iterator[str]:
    """Yield headline, line and fix of each finding, and notes of the first."""
    for at, finding in enumerate(map(translate_finding, cluster.findings)):
        yield f"{code_word(finding.severity)}[{finding.kind}] {finding.headline}"
        if finding.fault is not None:
            yield label_line(say("where"), row_words((site_words(finding.fault), first_line(finding.fault)), "  "))
        if not at:
            yield from (label_line(say("note"), note) for note in finding.notes[:2])
        yield from (label_line(say("help"), fix.summary) for fix in finding.fixes[:1])


def _state_lines(cluster: Cluster) -> Iterator[str]:
    """Yield ranks that did not answer, by state, with the place of the first."""
    for state, ranks in ranks_by_state(cluster).items():
        if state not in ORDERLY:
            words = [f"{code_word(state)}: {ranks_words(runs_of(numbers_of(ranks)))}", said(ranks[0].note)]
            words += map(site_words, ranks[0].said.stack[-1:])
            yield row_words(words, "; ")
