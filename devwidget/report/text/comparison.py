"""A comparison: what was fixed and what is new, hops and bytes, peaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from devwidget.language.speaking import said, say
from devwidget.records.comparison import Comparison, HopChange
from devwidget.records.finding import Finding
from devwidget.report.page.draw_page import shows
from devwidget.report.report_parts import Heading, Part, Sentence, Table
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import and_more, code_word, module_words, row_words
from devwidget.report.text.finding_text import finding_parts, finding_text

Row = tuple[str, str, str]
_MOST_HOPS = 20


class HopRow(NamedTuple):
    """The crossings of one line, before and after; why they were, and which modules ran."""

    source: str
    target: str
    cause: str
    modules: str
    code: str
    before: str
    after: str


@shows(Comparison)
def comparison_parts(compared: Comparison) -> Iterator[Part]:
    """What was measured before and after; the messages below each other in a text, beside each other on a page."""
    head = ("", say("before"), say("after"))
    yield Sentence(say("Comparison: {verdict}", verdict=verdict_words(compared)), "verdict")
    yield Table([head, *change_rows(compared)], right=(1,), look="compared")
    both = _join_messages(compared.left)
    messages = (say("fixed, and new"), _join_messages(compared.fixed), _join_messages(compared.new))
    yield Table([head, messages, (say("in both"), both, both)], look="compared", on="page")
    for finding in compared.fixed:
        headline = f"{code_word(finding.severity)}[{finding.kind}] {said(finding.headline)}"
        yield Sentence(say("fixed: {finding}", finding=headline), on="text")
    for finding in compared.new:
        yield Heading(say("new:"), on="text")
        yield from (replace(part, on="text") for part in finding_parts(finding))


def _join_messages(findings: Iterable[Finding]) -> str:
    return "\n\n".join(map(finding_text, findings))


def verdict_words(compared: Comparison) -> str:
    """`2 findings fixed, 1 new, 0 left; 12 hops fewer`."""
    fixed = count_words(len(compared.fixed), "finding")
    hops = compared.hops_after - compared.hops_before
    change = say("as many transfers")
    if hops:
        more, fewer = (
            say("{hops} more", hops=count_words(hops, "transfer")),
            say("{hops} fewer", hops=count_words(-hops, "transfer")),
        )
        change = more if hops > 0 else fewer
    return say(
        "{fixed} fixed, {new} new, {left} left; {change}",
        fixed=fixed,
        new=len(compared.new),
        left=len(compared.left),
        change=change,
    )


def change_rows(compared: Comparison) -> list[Row]:
    """What is measured, then the lines of hops that changed."""
    hops = hop_rows(compared)
    return [*measure_rows(compared), *((_hop_name(hop), hop.before, hop.after) for hop in hops)]


def _hop_name(hop: HopRow) -> str:
    name = row_words((f"{hop.source} -> {hop.target}", hop.cause, hop.modules))
    if hop.code:
        return f"{name}: {hop.code}"
    return name


def measure_rows(compared: Comparison) -> list[Row]:
    """What is measured, before, after: ends, findings, hops, bytes, peaks."""
    count = len(compared.fixed) + len(compared.left), len(compared.new) + len(compared.left)
    rows = [
        (say("findings"), str(count[0]), str(count[1])),
        (say("transfers"), str(compared.hops_before), str(compared.hops_after)),
        (say("bytes transferred"), format_bytes(compared.bytes_before), format_bytes(compared.bytes_after)),
        *(
            (say("peak of {device}", device=each.device), format_bytes(each.before), format_bytes(each.after))
            for each in compared.peaks
        ),
    ]
    ends = (say("ended by"), compared.error_before.partition("\n")[0], compared.error_after.partition("\n")[0])
    return [*([ends] if any(ends[1:]) else []), *rows]


def hop_rows(compared: Comparison) -> list[HopRow]:
    """The lines of hops that changed, those of one line in several modules together."""
    lines: dict[object, list[HopChange]] = {}
    for hop in compared.hops:
        lines.setdefault((hop.source, hop.target, hop.cause, hop.phase, hop.text), []).append(hop)
    return [_hop_row(hops) for hops in list(lines.values())[:_MOST_HOPS]]


def _hop_row(hops: Sequence[HopChange]) -> HopRow:
    first = hops[0]
    modules = and_more(module_words(first.module), len(hops) - 1)
    before = _amount_words(sum(hop.before for hop in hops), sum(hop.before_bytes for hop in hops))
    after = _amount_words(sum(hop.after for hop in hops), sum(hop.after_bytes for hop in hops))
    return HopRow(str(first.source), str(first.target), code_word(first.cause), modules, first.text, before, after)


def _amount_words(count: int, size: int) -> str:
    if count:
        return f"{count_words(count, 'transfer')}, {format_bytes(size)}"
    return say("none")
