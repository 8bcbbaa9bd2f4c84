"""A comparison as text: what was fixed and what is new, hops and bytes, peaks."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.comparing.comparison import Comparison, HopChange
from devwidget.records.schema.record import presents
from devwidget.report.style.columns import columns
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import counted, format_bytes
from devwidget.report.style.words import module_words
from devwidget.report.text.finding_text import finding_lines

Row = tuple[str, str, str]
_MOST_HOPS = 20


@presents("text", Comparison)
def comparison_text(compared: Comparison) -> str:
    """Before and after."""
    return text_of(_lines(compared))


def verdict_words(compared: Comparison) -> str:
    """`2 findings fixed, 1 new, 0 left; 12 hops fewer`."""
    fixed = counted(len(compared.fixed), "finding")
    hops = compared.hops_after - compared.hops_before
    change = f"{counted(abs(hops), 'hop')} {'more' if hops > 0 else 'fewer'}" if hops else "as many hops"
    return f"{fixed} fixed, {len(compared.new)} new, {len(compared.left)} left; {change}"


def change_rows(compared: Comparison) -> list[Row]:
    """What is measured, before, after: ends, findings, hops, bytes, peaks, then the lines of hops that changed."""
    count = len(compared.fixed) + len(compared.left), len(compared.new) + len(compared.left)
    rows = [
        ("findings", str(count[0]), str(count[1])),
        ("hops", str(compared.hops_before), str(compared.hops_after)),
        ("bytes that cross", format_bytes(compared.bytes_before), format_bytes(compared.bytes_after)),
        *((f"peak of {each.device}", format_bytes(each.before), format_bytes(each.after)) for each in compared.peaks),
    ]
    ends = ("ended by", compared.error_before.partition("\n")[0], compared.error_after.partition("\n")[0])
    return [*([ends] if any(ends[1:]) else []), *rows, *map(_hop_row, compared.hops[:_MOST_HOPS])]


def _hop_row(hop: HopChange) -> Row:
    name = f"{hop.source} -> {hop.target}, {hop.cause}, {module_words(hop.module)}" + (f": {hop.text}" if hop.text else "")
    return name, _amount(hop.before, hop.before_bytes), _amount(hop.after, hop.after_bytes)


def _amount(count: int, size: int) -> str:
    return f"{count}x {format_bytes(size)}" if count else "-"


def _lines(compared: Comparison) -> Iterator[str]:
    yield f"Comparison: {verdict_words(compared)}"
    rows = [(name, before, after) for name, before, after in change_rows(compared)]
    yield from columns([("", "before", "after"), *rows], right=(1,), indent="  ")
    for finding in compared.fixed:
        yield f"fixed: {finding.severity}[{finding.kind}] {finding.headline}"
    for finding in compared.new:
        yield ""
        yield "new:"
        yield from finding_lines(finding)
