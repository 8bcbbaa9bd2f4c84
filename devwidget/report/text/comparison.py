"""A comparison: what was fixed and what is new, hops and bytes, peaks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from devwidget.language.speaking import said, say
from devwidget.records.comparison import Comparison
from devwidget.report.page.draw_page import shows
from devwidget.report.report_parts import Fold, Heading, Part, Sentence, Table
from devwidget.report.style.units import count_words, format_bytes
from devwidget.report.style.words import code_word, modules_words, row_words
from devwidget.report.text.finding_text import finding_parts
from devwidget.views.sums import group_by, total, values_once

Row = tuple[str, str, str]
_MOST_HOPS = 20


@shows(Comparison)
def comparison_parts(compared: Comparison) -> Iterator[Part]:
    """What was measured before and after, and the findings that differ. A page folds those in both."""
    yield Sentence(say("Comparison: {verdict}", verdict=verdict_words(compared)), "verdict")
    yield Table([("", say("before"), say("after")), *change_rows(compared)], right=(1,))
    for finding in compared.fixed:
        headline = f"{code_word(finding.severity)}[{finding.kind}] {said(finding.headline)}"
        yield Sentence(say("fixed: {finding}", finding=headline))
    for finding in compared.new:
        yield Heading(say("new:"))
        yield from finding_parts(finding)
    if compared.left:
        yield Fold(say("in both"), list(chain.from_iterable(map(finding_parts, compared.left))), on="page")


def change_rows(compared: Comparison) -> list[Row]:
    """What is measured, then the lines of transfers that changed."""
    rows = measure_rows(compared)
    for hop in hop_rows(compared):
        name = row_words((f"{hop['source']} -> {hop['target']}", hop["cause"], hop["modules"]))
        if hop["code"]:
            name = f"{name}: {hop['code']}"
        rows.append((name, hop["before"], hop["after"]))
    return rows


def verdict_words(compared: Comparison) -> str:
    """`2 findings fixed, 1 new, 0 left; 12 transfers fewer`."""
    hops = compared.hops_after - compared.hops_before
    amount = count_words(abs(hops), "transfer")
    if hops > 0:
        change = say("{hops} more", hops=amount)
    elif hops < 0:
        change = say("{hops} fewer", hops=amount)
    else:
        change = say("the same number of transfers")
    return say(
        "{fixed} fixed, {new} new, {left} left; {change}",
        fixed=count_words(len(compared.fixed), "finding"),
        new=len(compared.new),
        left=len(compared.left),
        change=change,
    )


def measure_rows(compared: Comparison) -> list[Row]:
    """What is measured, before, after: ends, findings, transfers, bytes, peaks."""
    left = len(compared.left)
    rows = [
        (say("findings"), str(len(compared.fixed) + left), str(len(compared.new) + left)),
        (say("transfers"), str(compared.hops_before), str(compared.hops_after)),
        (say("bytes transferred"), format_bytes(compared.bytes_before), format_bytes(compared.bytes_after)),
    ]
    for each in compared.peaks:
        rows.append((say("peak of {device}", device=each.device), format_bytes(each.before), format_bytes(each.after)))
    if compared.error_before or compared.error_after:
        ends = compared.error_before.partition("\n")[0], compared.error_after.partition("\n")[0]
        rows.insert(0, (say("ended with"), *ends))
    return rows


def hop_rows(compared: Comparison) -> list[dict[str, str]]:
    """The crossings of each line that changed, before and after; why they were, and which modules ran."""
    lines = group_by(compared.hops, lambda hop: (hop.source, hop.target, hop.cause, hop.phase, hop.text))
    rows = []
    for hops in list(lines.values())[:_MOST_HOPS]:
        first = hops[0]
        row = {"source": str(first.source), "target": str(first.target), "cause": code_word(first.cause), "code": first.text}
        row["modules"] = modules_words(values_once(hops, "module"))
        row["before"] = _amount_words(total(hops, "before"), total(hops, "before_bytes"))
        row["after"] = _amount_words(total(hops, "after"), total(hops, "after_bytes"))
        rows.append(row)
    return rows


def _amount_words(count: int, size: int) -> str:
    if count:
        return f"{count_words(count, 'transfer')}, {format_bytes(size)}"
    return say("none")
