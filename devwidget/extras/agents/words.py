"""Evidence as text, and every result in the few characters that a language model reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from devwidget.extras.agents.records.evidence import Evidence
from devwidget.language.speaking import said, say
from devwidget.records.errors import of_worker
from devwidget.records.explanation import Explanation
from devwidget.records.finding import Finding
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import Record, presents
from devwidget.records.trace import Trace
from devwidget.report.page.draw_page import shows
from devwidget.report.report_parts import Part, Sentence
from devwidget.report.style.units import format_bytes
from devwidget.report.style.words import (
    code_word,
    first_line,
    place_words,
    row_words,
    shorten_text,
    site_words,
    translate_finding,
)
from devwidget.report.text.finding_text import confidence_words, extra_notes
from devwidget.report.text.trace_text import summary_words

MOST_CHARACTERS = 2000
_FOR_THE_COUNT = 100
"""Characters that are free for the last line."""
_VERDICTS = {
    "doubtful": Message("The step runs with the edit, but the edit is doubtful"),
    "fails": Message("The edit does not work"),
    "not run": Message("The edit was not tried"),
}


@shows(Evidence)
def evidence_parts(evidence: Evidence) -> Iterator[Part]:
    """Yield the verdict, what speaks against the edit, then what has changed."""
    yield Sentence(_verdict_words(evidence), "verdict")
    for reason in evidence.reasons:
        yield Sentence(said(reason), label=say("because"))
    for label, findings in ((say("fixed"), evidence.fixed), (say("new"), evidence.new), (say("left"), evidence.left)):
        for finding in findings:
            yield Sentence(_headline(finding), label=label)
    before, after = format_bytes(evidence.copied_before), format_bytes(evidence.copied_after)
    if evidence.copied_before or evidence.copied_after:
        yield Sentence(say("{before} per step before, {after} with the edit", before=before, after=after), label=say("copied"))
    for each in evidence.noticed:
        yield Sentence(said(each), label=say("note"))


def _verdict_words(evidence: Evidence) -> str:
    if evidence.verdict != "works":
        return said(_VERDICTS[evidence.verdict])
    if not evidence.gradients:
        return say("The edit works: the step runs twice with it, and its values agree with the repaired step")
    return say(
        "The edit works: the step runs twice with it, and its values and {count} gradients agree with the repaired step",
        count=evidence.gradients,
    )


@presents("llm", Evidence)
def _evidence_for_models(evidence: Evidence) -> str:
    return fit_blocks([str(evidence)], [edit.diff() for edit in evidence.edits])


@presents("llm", Trace)
def _trace_for_models(trace: Trace) -> str:
    head = [say("Trace: {summary}", summary=summary_words(trace))]
    if trace.error:
        head.append(say("ended with {error}", error=trace.error.partition("\n")[0]))
    return fit_blocks(head, map(_finding_block, trace.findings))


@presents("llm", Explanation)
def _explanation_for_models(explanation: Explanation) -> str:
    error = of_worker(explanation.error)[0].strip().partition("\n")[0]
    head = [each for each in (said(explanation.verdict), error) if each]
    if not explanation.findings:
        head.append(place_words(explanation.site))
        head += [f"  {value.name} {value.dtype}{list(value.shape)} {value.device}" for value in explanation.values]
    return fit_blocks(head, map(_finding_block, explanation.findings))


@presents("llm", Record)
def _record_for_models(record: Record) -> str:
    first, *rest = str(record).split("\n")
    return fit_blocks([first], rest)


def fit_blocks(head: Sequence[str], blocks: Iterable[str]) -> str:
    """Join what fits into `MOST_CHARACTERS`, and count what does not."""
    text = shorten_text("\n".join(filter(None, head)), MOST_CHARACTERS - _FOR_THE_COUNT)
    left = list(blocks)
    while left and len(text) + len(left[0]) < MOST_CHARACTERS - _FOR_THE_COUNT:
        text = f"{text}\n{left.pop(0)}"
    if left:
        text += "\n" + say("{count} more not shown", count=len(left))
    return text


def _headline(finding: Finding) -> str:
    return row_words((f"{code_word(finding.severity)}[{finding.kind}] {finding.headline}", site_words(finding.fault)))


def _finding_block(finding: Finding) -> str:
    """Return what happens, the lines, and the first edit."""
    finding = translate_finding(finding)
    lines = [_headline(finding), *(f"  {note}" for note in (first_line(finding.fault), *extra_notes(finding)) if note)]
    for fix in finding.fixes[:1]:
        lines.append("  " + say("({confidence}) {summary}", confidence=confidence_words(fix), summary=fix.summary))
        lines += fix.diff().splitlines() or fix.code.splitlines()
    return "\n".join(lines)
