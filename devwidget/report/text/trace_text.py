"""A trace as text: findings first, then the moves grouped by line, then what was checked and what was not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace
from devwidget.report.page.draw_page import writes
from devwidget.report.report_parts import GAP, Code, Fold, Heading, Part, Sentence, Table
from devwidget.report.style.safe_text import columns_of
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import (
    and_more,
    code_word,
    device_list,
    first_line,
    module_words,
    row_words,
    site_words,
    tensor_words,
    wrap_list,
)
from devwidget.report.text.advice import parallel_advice
from devwidget.report.text.draw_text import MOST_COLUMNS, MOST_ROWS, line_table
from devwidget.report.text.failure_card import failure_parts
from devwidget.report.text.finding_text import finding_parts
from devwidget.report.text.memory_words import memory_parts
from devwidget.report.text.parallel_words import parallel_summary, parallel_title, parallel_words
from devwidget.views.clock import with_real_times
from devwidget.views.hops import Hop, WaitingLine, group_hops, group_waits, join_by_line
from devwidget.views.parallel import ParallelCall, parallel_calls

_FEW_ROWS = 2
"""Of each table of a trace that has nothing to tell but that all is well."""
_JOINED = attrgetter("examples"), attrgetter("modules")
_PEER_ACCESS = {"yes": Message("direct"), "no": Message("through the host"), "unknown": Message("peer access unknown")}


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
    for at, table in enumerate(_line_tables(trace, _FEW_ROWS if is_clean else MOST_ROWS)):
        if not (is_clean and at):
            yield GAP
        yield table
    for call in parallel_calls(trace):
        yield from _parallel_parts(call)
    memory = list(memory_parts(trace, with_lines=not is_clean))
    if memory and not is_clean:
        yield GAP
    yield from memory
    checks = [Sentence(line) for line in check_lines(trace)]
    if checks:
        yield Fold(_checked_words(trace), checks)


def _checked_words(trace: Trace) -> str:
    return say("checked: {kinds} of fault", kinds=count_words(len(trace.checked), "kind"))


def summary_words(trace: Trace) -> str:
    """One line: findings by severity, moves, time."""
    crossings = sum(move.count for move in trace.moves)
    total = sum(move.bytes * move.count for move in trace.moves)
    if trace.error:
        ended = [say("ended by an exception")]
    else:
        ended = []
    found = [findings_words(trace)] if trace.findings or not trace.error else []
    parts = [
        *_idle_words(trace),
        *ended,
        *found,
        row_words((count_words(crossings, "hop"), format_bytes(total))) if crossings else say("no hops"),
    ]
    if trace.waits:
        parts.append(count_words(sum(wait.count for wait in trace.waits), "wait"))
    if trace.seconds and not trace.virtual_gpus:
        parts.append(format_seconds(trace.seconds))
    if trace.virtual_gpus and not _idle_words(trace):
        parts.append(count_words(trace.virtual_gpus, "virtual GPU"))
    return " · ".join(parts)


def _idle_words(trace: Trace) -> list[str]:
    """Said first of a recording in which virtual GPUs were there and nothing came to one: what it says is of the CPU."""
    curves = [curve for curve in trace.memory if curve.device.is_accelerator]
    held = any(curve.refused or any(point.allocated for point in curve.points) for curve in curves)
    touched = (device for op in trace.ops for device in (*op.inputs, op.output) if device is not None)
    moved = (device for move in trace.moves for device in (move.source, move.target))
    if not trace.virtual_gpus or held or any(device.is_accelerator for device in (*touched, *moved)):
        return []
    return [say("nothing was done on the {gpus}", gpus=count_words(trace.virtual_gpus, "virtual GPU"))]


def findings_words(trace: Trace) -> str:
    """`2 errors, 1 warning`, or `no findings`."""
    severities = [finding.severity for finding in trace.findings]
    words = {"error": "error", "warning": "warning", "info": "hint"}
    return row_words(count_words(severities.count(each), words[each]) for each in words if each in severities) or say(
        "no findings"
    )


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
        yield say("could not put back: {lost}", lost=lost)
    yield from trial_words(trace)


def wait_words(trace: Trace) -> Iterator[str]:
    """Says that silence of the rule for waits does not mean that nothing waits."""
    silent = [wait for wait in trace.waits if not any(f.kind == "host-sync" and f.fault == wait.site for f in trace.findings)]
    if silent and "host-sync" in trace.checked:
        told = count_words(sum(wait.count for wait in silent), "wait")
        yield say("host-sync: {waits} without a finding, in the table of waits by line", waits=told)


def trial_words(trace: Trace) -> Iterator[str]:
    """How often the step ran, if not once, and what of that may have been noticed."""
    if trace.step_runs > 1:
        yield say("the step ran {count} times, after the first time to try fixes", count=trace.step_runs)
        yield from (say("that may have been noticed: {reason}", reason=said(why)) for why in trace.noticed)


def not_checked_words(trace: Trace) -> list[str]:
    """`non-leaf-grad, optimizer-misplaced: no backward pass in this trace`: the rules that lack the same thing, together."""
    groups: dict[str, list[str]] = {}
    for each in trace.not_checked:
        name, _, reason = each.partition(": ")
        if isinstance(each, Message):
            name, reason = (said(each.facts[part]) for part in ("kind", "reason"))
        groups.setdefault(reason, []).append(name)
    return [say("{kind}: {reason}", kind=", ".join(names), reason=reason) for reason, names in groups.items()]


def _line_tables(trace: Trace, most: int) -> Iterator[Table]:
    """What crossed and what was waited for, each line of the program once; which copies arrived as they were sent."""
    hops = join_by_line(group_hops(trace.moves), lambda hop: hop.site or (hop.cause, hop.source, hop.target))
    waits = join_by_line(group_waits(trace.waits), lambda line: line.site or line)
    if hops:
        rows = [_hop_cells(line) for line in sorted(hops, key=lambda line: -sum(hop.bytes for hop in line))]
        yield line_table(say("moves, by line"), rows, (1, 2), most)
    if waits:
        yield line_table(say("waits of the host, by line"), [_wait_cells(line) for line in waits], (1,), most)
    if trace.copy_checks:
        yield line_table(say("copies between GPUs, checksums at both ends"), _copy_rows(trace), (1,), most)


def _wait_cells(line: Sequence[WaitingLine]) -> tuple[str, ...]:
    site, modules = line[0].site or line[0].called, dict.fromkeys(module for each in line for module in each.modules)
    return (
        device_list(dict.fromkeys(each.device for each in line)),
        f"{sum(each.count for each in line)}x",
        ", ".join(dict.fromkeys(call for each in line for call in each.calls)),
        ", ".join(map(code_word, dict.fromkeys(phase for each in line for phase in each.phases))),
        and_more(module_words(line[0].modules[0]), len(modules) - 1),
        site_words(site),
        first_line(site),
    )


def _hop_cells(line: Sequence[Hop]) -> tuple[str, ...]:
    examples, modules = ([*dict.fromkeys(each for hop in line for each in of(hop))] for of in _JOINED)
    return (
        _way_words({(str(hop.source), str(hop.target)): None for hop in line}),
        f"{sum(hop.count for hop in line)}x",
        format_bytes(sum(hop.bytes for hop in line)),
        ", ".join(dict.fromkeys(code_word(hop.cause) for hop in line)),
        ", ".join(tensor_words(*example) for example in examples[:2]) + (", ..." if len(examples) > 2 else ""),
        and_more(module_words(modules[0]), len(modules) - 1),
        site_words(line[0].site),
        first_line(line[0].site),
    )


def _way_words(ways: Collection[tuple[str, str]]) -> str:
    """`cuda:0 -> cuda:1, cuda:2`; with `<->` where something comes back from all of them."""
    for hub in next(iter(ways)):
        there, back = [end for start, end in ways if start == hub], [start for start, end in ways if end == hub]
        others = ", ".join(there or back)
        if len(there) + len(back) == len(ways) and (not there or not back or set(there) == set(back)):
            if there:
                return f"{hub} {'<->' if there and back else '->'} {others}"
            return f"{others} -> {hub}"
    return and_more(" -> ".join(next(iter(ways))), len(ways) - 1)


def _copy_rows(trace: Trace) -> list[tuple[str, str, str, str]]:
    """A row for each pair of GPUs."""
    rows = []
    for source, target, peer in dict.fromkeys((each.source, each.target, each.peer_access) for each in trace.copy_checks):
        checks = [each for each in trace.copy_checks if (each.source, each.target) == (source, target)]
        count, wrong = sum(each.count for each in checks), sum(each.wrong for each in checks)
        if wrong:
            arrived = say("{count} arrived changed", count=wrong)
        else:
            arrived = say("as sent")
        rows.append((f"{source} -> {target}", f"{count}x", arrived, said(_PEER_ACCESS[peer])))
    return rows


def _parallel_parts(call: ParallelCall) -> Iterator[Part]:
    yield Heading(say("{what}: {place}", what=parallel_title(call), place=parallel_summary(call)))
    is_timed = any(replica.seconds for replica in call.replicas)
    header = (
        *(say("device"), say("samples"), say("batch in"), say("parameters in")),
        *(say("out"), say("gradients"), say("peak")),
        *((say("time"),) if is_timed else ()),
    )
    rows = [
        (
            str(replica.device), str(replica.samples), format_bytes(replica.input_bytes), format_bytes(replica.parameter_bytes),
            format_bytes(replica.output_bytes), format_bytes(replica.gradient_bytes),
            format_bytes(call.peak_on(replica.device)) if call.peak_on(replica.device) else "",
            *((format_seconds(replica.seconds),) if is_timed else ()),
        )
        for replica in call.replicas
    ]  # fmt: skip
    if rows:
        yield Table([header, *rows], right=range(1, len(header)))
    yield from (Sentence(f"  {words}") for words in parallel_words(replace(call, error="")))  # which was said above
    for each in parallel_advice(call):
        yield Sentence(each.text, label=say("help"))
        if each.code:
            yield Code(each.code.splitlines())
