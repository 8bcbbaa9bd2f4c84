"""The content of the tab Watch."""

from __future__ import annotations

from typing import Any

from devwidget.extras.watch.records.run import RecordedStep, WatchedRun
from devwidget.extras.watch.views import list_marks
from devwidget.extras.watch.words.figures import run_figure
from devwidget.extras.watch.words.run import verdict_words
from devwidget.language.speaking import said, say
from devwidget.report.page.cards import finding_card
from devwidget.report.style.safe_text import displays_safely
from devwidget.report.style.units import count_words, format_bytes


@displays_safely
def run_head(run: WatchedRun) -> dict[str, Any]:
    """Return the header of a run that was watched elsewhere: model class, number of steps, peak of each device."""
    peaks = [
        say("{device}: {facts}", device=each.device, facts=say("peak {size}", size=format_bytes(max(each.peak))))
        for each in run.steps.memory
    ]
    facts = " · ".join((count_words(run.steps.total, "step"), *peaks))
    return {"title": run.model or say("no model"), "bytes": facts}


@displays_safely
def watched_content(run: WatchedRun | None) -> dict[str, Any]:
    """Return figure, findings and recorded steps; {} without a run."""
    if run is None:
        return {}
    return {
        "summary": verdict_words(run),
        "error": say("ended with {error}", error=run.error.partition("\n")[0]) if run.error else "",
        "figure": run_figure(run),
        "findings": [finding_card(mark.finding, -1) for mark in list_marks(run)],
        "not_checked": list(map(said, run.not_checked)),
        "recorded": list(map(_recorded_content, run.recorded_steps)),
    }


def _recorded_content(step: RecordedStep) -> dict[str, Any]:
    found = ""
    if step.trace.findings:
        found = count_words(len(step.trace.findings), "finding")
    return {"step": step.number, "reason": said(step.reason), "found": found}
