"""A trace as text: findings first, then the moves grouped by line, then what was checked and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.finding import SEVERITIES
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace
from devwidget.report.page.draw_page import writes
from devwidget.report.report_parts import GAP, Fold, Heading, Part, Sentence, Table
from devwidget.report.style.safe_text import columns_of
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import (
    and_more,
    code_word,
    examples_words,
    first_line,
    modules_words,
    row_words,
    site_words,
    wrap_list,
)
from devwidget.report.text.draw_text import MOST_COLUMNS, MOST_ROWS, line_table
from devwidget.report.text.failure_card import failure_parts
from devwidget.report.text.finding_text import finding_parts
from devwidget.report.text.memory_words import line_card, memory_parts
from devwidget.report.text.parallel_words import parallel_summary, parallel_title, parallel_words, replica_card
from devwidget.views.clock import with_real_times
from devwidget.views.hops import Hop, group_hops, join_by_line
from devwidget.views.parallel import ParallelCall, parallel_calls
from devwidget.views.sums import group_by, items_once, total, values_once

_MOST_LINES = 500
_FEW_ROWS = 2
"""Of each table of a trace that has nothing to tell but that all is well."""


@writes(Trace)
def trace_parts(trace: Trace) -> Iterator[Part]:
    """The report of one recording."""
    trace = with_real_times(trace)
    classes = {event.path: event.class_name for event in trace.modules}
    yield Sentence(say("Trace: {summary}", summary=summary_words(trace)), "verdict")
    yield from failure_parts(trace)
    for finding in trace.findings:
        yield from finding_parts(finding, classes.get(finding.module or "", ""))
    is_clean = _is_clean(trace)
    memory = list(memory_parts(trace, with_lines=not is_clean))
    for at, table in enumerate(_line_tables(trace, _FEW_ROWS if is_clean else MOST_ROWS)):
        if not (is_clean and at):
            yield GAP
        yield table
    for call in parallel_calls(trace):
        yield from _parallel_parts(call)
    if memory and not is_clean:
        yield GAP
    yield from memory
    checks = list(map(Sentence, check_lines(trace)))
    if checks:
        yield Fold(_checked_words(trace), checks)


def _checked_words(trace: Trace) -> str:
    return say("checked: {kinds} of fault", kinds=count_words(len(trace.checked), "kind"))


def summary_words(trace: Trace, transfer: str = "transfer") -> str:
    """One line: findings by severity, transfers, or hops as the panel calls them, time."""
    is_idle = _is_idle(trace)
    gpus = count_words(trace.virtual_gpus, "virtual GPU")
    parts = []
    if is_idle:
        parts.append(say("nothing ran on the {gpus}", gpus=gpus))
    if trace.error:
        parts.append(say("ended with an exception"))
    if trace.findings or not trace.error:
        parts.append(findings_words(trace))
    if trace.moves:
        parts.append(count_words(total(trace.moves, "count"), transfer))
        parts[-1] = row_words((parts[-1], format_bytes(total(trace.moves, "all_bytes"))))
    elif transfer == "hop":
        parts.append(say("no hops"))
    else:
        parts.append(say("no transfers"))
    if trace.waits:
        parts.append(count_words(total(trace.waits, "count"), "sync"))
    if trace.seconds and not trace.virtual_gpus:
        parts.append(format_seconds(trace.seconds))
    if trace.virtual_gpus and not is_idle:
        parts.append(gpus)
    return " · ".join(parts)


def _is_idle(trace: Trace) -> bool:
    """Whether there were virtual GPUs and nothing ran on any."""
    if not trace.virtual_gpus:
        return False
    touched = {*items_once(trace.ops, "inputs"), *values_once(trace.ops, "output")}
    touched |= {*values_once(trace.moves, "source"), *values_once(trace.moves, "target")}
    for curve in trace.memory:
        if curve.refused or total(curve.points, "allocated"):
            touched.add(curve.device)
    return not any(device.is_accelerator for device in touched - {None})


def findings_words(trace: Trace) -> str:
    """`2 errors, 1 warning`, or `no findings`."""
    counts = Counter(finding.severity for finding in trace.findings)
    words = [count_words(counts[each], _SEVERITIES[each]) for each in SEVERITIES if counts[each]]
    return row_words(words) or say("no findings")


_SEVERITIES = {"error": "error", "warning": "warning", "info": "hint"}


def _is_clean(trace: Trace) -> bool:
    """Whether a trace has nothing to tell but that all is well."""
    return not (trace.error or trace.findings or trace.parallel or any(curve.refused for curve in trace.memory))


def check_lines(trace: Trace) -> Iterator[str]:
    """What was checked, and what was not and why."""
    rules = say("checked: {rules}", rules=", ".join(trace.checked))
    if trace.checked and _is_clean(trace) and columns_of(rules) > MOST_COLUMNS:
        yield _checked_words(trace)
    elif trace.checked:
        yield from wrap_list(rules, MOST_COLUMNS)
    yield from wait_words(trace)
    for words in not_checked_words(trace):
        yield from wrap_list(say("not checked: {rules}", rules=words), MOST_COLUMNS)
    for lost in trace.not_restored:
        yield say("could not restore: {lost}", lost=lost)
    yield from trial_words(trace)


def wait_words(trace: Trace) -> Iterator[str]:
    """Says that without a finding of the rule for syncs there may still be syncs."""
    found_at = {finding.fault for finding in trace.findings if finding.kind == "host-sync"}
    others = [wait for wait in trace.waits if wait.site not in found_at]
    if others and "host-sync" in trace.checked:
        count = count_words(total(others, "count"), "sync")
        yield say("host-sync: {waits} not reported as findings; see the table of syncs", waits=count)


def trial_words(trace: Trace) -> Iterator[str]:
    """How often the step ran, if not once, and which side effects that may have had."""
    if trace.step_runs > 1:
        yield say("the step ran {count} times: once to trace it, then to verify fixes", count=trace.step_runs)
        for why in trace.noticed:
            yield say("side effects outside the step: {reason}", reason=said(why))


def not_checked_words(trace: Trace) -> list[str]:
    """`non-leaf-grad, optimizer-misplaced: no backward pass in this trace`: rules that miss the same thing, together."""
    groups: dict[str, list[str]] = {}
    for each in trace.not_checked:
        if isinstance(each, Message):
            name, reason = said(each.facts["kind"]), said(each.facts["reason"])
        else:
            name, _, reason = each.partition(": ")
        groups.setdefault(reason, []).append(name)
    return [say("{kind}: {reason}", kind=", ".join(names), reason=reason) for reason, names in groups.items()]


def _line_tables(trace: Trace, most: int) -> Iterator[Table]:
    """Transfers and syncs, each line of the program once."""
    hops = join_by_line(group_hops(trace.moves), lambda hop: hop.site or (hop.cause, hop.source, hop.target))
    waits = wait_cards(trace)
    if hops:
        largest = sorted(hops, key=lambda line: -total(line, "bytes"))
        yield line_table(say("transfers, by line"), list(map(_hop_cells, largest)), (1, 2), most)
    if waits:
        cells = itemgetter("device", "times", "what", "phase", "module", "place", "code")
        yield line_table(say("syncs, by line"), list(map(cells, waits)), (1,), most)


def wait_cards(trace: Trace) -> list[dict[str, Any]]:
    """The syncs by line, the most frequent first."""
    groups = group_by(trace.waits, lambda wait: (wait.site and wait.site.line_id, wait.device, wait.called))
    cards = []
    for waits in sorted(groups.values(), key=lambda group: -total(group, "count"))[:_MOST_LINES]:
        first, count = waits[0], total(waits, "count")
        calls = dict.fromkeys(wait.call.strip("_") for wait in waits)
        phases = ", ".join(map(code_word, values_once(waits, "phase")))
        card: dict[str, Any] = {"device": str(first.device), "what": ", ".join(calls), "phase": phases}
        card |= {"count": count, "times": f"{count}x"}
        cards.append(card | line_card(values_once(waits, "module"), first.site or first.called))
    return cards


def _hop_cells(line: Sequence[Hop]) -> tuple[str, ...]:
    return (
        _way_words(dict.fromkeys((str(hop.source), str(hop.target)) for hop in line)),
        f"{total(line, 'count')}x",
        format_bytes(total(line, "bytes")),
        ", ".join(map(code_word, values_once(line, "cause"))),
        examples_words(items_once(line, "examples"), 2),
        modules_words(items_once(line, "modules")),
        site_words(line[0].site),
        first_line(line[0].site),
    )


def _way_words(ways: Collection[tuple[str, str]]) -> str:
    """`cuda:0 -> cuda:1, cuda:2`; with `<->` where something comes back from all of them."""
    for hub in next(iter(ways)):
        there = [end for start, end in ways if start == hub]
        back = [start for start, end in ways if end == hub]
        if len(there) + len(back) < len(ways):
            continue
        if not there:
            return f"{', '.join(back)} -> {hub}"
        if not back:
            return f"{hub} -> {', '.join(there)}"
        if set(there) == set(back):
            return f"{hub} <-> {', '.join(there)}"
    return and_more(" -> ".join(next(iter(ways))), len(ways) - 1)


def _parallel_parts(call: ParallelCall) -> Iterator[Part]:
    yield Heading(say("{first}: {second}", first=parallel_title(call), second=parallel_summary(call)))
    heads = {
        "device": say("device"),
        "samples": say("samples"),
        "input": say("batch in"),
        "parameters": say("parameters in"),
        "output": say("out"),
        "gradients": say("gradients"),
        "peak": say("peak"),
    }
    cards = [replica_card(call, replica) for replica in call.replicas]
    if any(card["time"] for card in cards):
        heads["time"] = say("time")
    if cards:
        yield Table(list(map(itemgetter(*heads), (heads, *cards))), right=range(1, len(heads)))
    for words in parallel_words(call):
        yield Sentence(f"  {words}")
