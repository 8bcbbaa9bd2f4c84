"""The diagnosis of a job in ten lines: states of its ranks, what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, numbers_of
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.words.cluster import cluster_headline, ranks_by_state
from devwidget.language.speaking import said, say
from devwidget.records.finding import Finding
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
_FINE = frozenset({"answered", "ended"})


def is_well(cluster: Cluster) -> bool:
    """Return whether every rank answered or ended normally, without findings above a hint."""
    return all(rank.state in _FINE for rank in cluster.ranks) and not list(_grave(cluster))


def _grave(cluster: Cluster) -> Iterator[Finding]:
    return (finding for finding in cluster.findings if finding.severity != "info")


def diagnosis_text(cluster: Cluster) -> str:
    """Return the diagnosis; lines beyond the tenth are counted."""
    lines = [cluster_headline(cluster, len(lay_out_columns(cluster).each)), *_finding_lines(cluster), *_state_lines(cluster)]
    if is_well(cluster):
        lines.append(say("no problems found; checked: {rules}", rules=", ".join(cluster.checked)))
    if len(lines) > MOST_LINES:
        lines = [
            *lines[: MOST_LINES - 1],
            say("and {count} more lines: print(devwidget.ranks(...))", count=len(lines) - MOST_LINES + 1),
        ]
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
        if state not in _FINE:
            words = [f"{code_word(state)}: {ranks_words(runs_of(numbers_of(ranks)))}", said(ranks[0].note)]
            words += map(site_words, ranks[0].said.stack[-1:])
            yield row_words(words, "; ")
