"""An explanation as text: the error, the cause, the values on the failing line, and what only a run can tell."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.errors import of_worker
from devwidget.records.explanation import Explanation
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.words import first_line, site_words, tensor_words
from devwidget.report.text.finding_text import finding_lines


@presents("text", Explanation)
def explanation_text(explanation: Explanation) -> str:
    """The answer to `why did it fail?`."""
    return text_of(_lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    error, place = of_worker(explanation.error)
    first = next(iter(error.strip().splitlines()), "")
    yield f"{first} ({place})" if place else first
    yield said(explanation.verdict)
    for finding in explanation.findings:
        yield ""
        yield from finding_lines(finding)
    if explanation.site is not None:
        yield ""
        yield f"{site_words(explanation.site)}  {first_line(explanation.site)}"
        rows = [(v.name, tensor_words(v.dtype, v.shape), str(v.device)) for v in explanation.values]
        yield from columns(rows, indent="  ") if rows else ()
    if explanation.notes:
        yield ""
        yield from (say("note: {note}", note=said(note)) for note in explanation.notes)
