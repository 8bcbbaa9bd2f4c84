"""A trace as text: findings first, then the moves grouped by line, then what was checked and what was not."""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.records.trace import Trace
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import (
    align_columns,
    and_more,
    code_word,
    first_line,
    label_line,
    module_words,
    row_words,
    site_words,
    tensor_words,
)
from devwidget.report.text.advice import parallel_advice
from devwidget.report.text.failure_card import failure_lines
from devwidget.report.text.finding_text import finding_lines
from devwidget.report.text.memory_words import memory_lines
from devwidget.report.text.parallel_words import parallel_summary, parallel_title, parallel_words
from devwidget.views.clock import with_real_times
from devwidget.views.hops import Hop, WaitingLine, fold_phases, group_hops, group_waits
from devwidget.views.parallel import ParallelCall, parallel_calls

_MOST_HOPS = _MOST_WAITS = 20
_PEER_ACCESS = {"yes": Message("direct"), "no": Message("through the host"), "unknown": Message("peer access unknown")}


@presents("text", Trace)
def trace_text(trace: Trace) -> str:
    """The report of one recording."""
    return text_of([*_trace_lines(trace), "", *check_lines(trace)]).rstrip()


def trace_blocks(trace: Trace) -> list[str]:
    """What a step did, block by block, and how many kinds of fault were looked for."""
    blocks = text_of(_trace_lines(trace)).rstrip().split("\n\n")
    return (
        [*blocks, say("checked: {kinds} of fault", kinds=count_words(len(trace.checked), "kind"))] if trace.checked else blocks
    )


def summary_words(trace: Trace) -> str:
    """One line: findings by severity, moves, time."""
    crossings = sum(move.count for move in trace.moves)
    total = sum(move.bytes * move.count for move in trace.moves)
    ended = [say("ended by an exception")] if trace.error else []
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


def _trace_lines(trace: Trace) -> Iterator[str]:
    trace = with_real_times(trace)
    yield say("Trace: {summary}", summary=summary_words(trace))
    yield from failure_lines(trace)
    classes = {event.path: event.class_name for event in trace.modules}
    for finding in trace.findings:
        yield ""
        yield from finding_lines(finding, classes.get(finding.module or "", ""))
    if trace.moves:
        yield ""
        yield from _hop_lines(fold_phases(group_hops(trace.moves)))
    if trace.waits:
        yield ""
        yield from _wait_lines(group_waits(trace.waits))
    if copies := list(_copy_lines(trace)):
        yield ""
        yield from copies
    for call in parallel_calls(trace):
        yield ""
        yield from _parallel_lines(call)
    if lines := list(memory_lines(trace)):
        yield ""
        yield from lines


def check_lines(trace: Trace) -> Iterator[str]:
    """What was checked, and what was not and why."""
    if trace.checked:
        yield say("checked: {rules}", rules=", ".join(trace.checked))
    yield from wait_words(trace)
    yield from (say("not checked: {rules}", rules=words) for words in not_checked_words(trace))
    for lost in trace.not_restored:
        yield say("could not put back: {lost}", lost=lost)
    yield from trial_words(trace)


def wait_words(trace: Trace) -> Iterator[str]:
    """That silence of the rule for waits does not mean that nothing waits."""
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


def _hop_lines(hops: tuple[Hop, ...]) -> Iterator[str]:
    yield say("moves, by line")
    yield from align_columns([_hop_cells(hop) for hop in hops[:_MOST_HOPS]], right=(1, 2), indent="  ")
    if len(hops) > _MOST_HOPS:
        yield "  " + say("... and {count} more lines", count=len(hops) - _MOST_HOPS)


def _wait_lines(lines: tuple[WaitingLine, ...]) -> Iterator[str]:
    yield say("waits of the host, by line")
    yield from align_columns([_wait_cells(line) for line in lines[:_MOST_WAITS]], right=(1,), indent="  ")
    if len(lines) > _MOST_WAITS:
        yield "  " + say("... and {count} more lines", count=len(lines) - _MOST_WAITS)


def _wait_cells(line: WaitingLine) -> tuple[str, ...]:
    return (
        str(line.device),
        f"{line.count}x",
        ", ".join(line.calls),
        ", ".join(map(code_word, line.phases)),
        and_more(module_words(line.modules[0]), len(line.modules) - 1),
        site_words(line.site or line.called),
        first_line(line.site or line.called),
    )


def _hop_cells(hop: Hop) -> tuple[str, ...]:
    what = ", ".join(tensor_words(*example) for example in hop.examples[:2]) + (", ..." if len(hop.examples) > 2 else "")
    modules = and_more(module_words(hop.modules[0]), len(hop.modules) - 1)
    direction = f"{hop.source} -> {hop.target}"
    return (
        direction,
        f"{hop.count}x",
        format_bytes(hop.bytes),
        code_word(hop.cause),
        what,
        modules,
        site_words(hop.site),
        first_line(hop.site),
    )


def _copy_lines(trace: Trace) -> Iterator[str]:
    """A row for each pair of GPUs; nothing where no copy was verified."""
    pairs = dict.fromkeys((each.source, each.target, each.peer_access) for each in trace.copy_checks)
    rows = []
    for source, target, peer in pairs:
        checks = [each for each in trace.copy_checks if (each.source, each.target) == (source, target)]
        count, wrong = sum(each.count for each in checks), sum(each.wrong for each in checks)
        rows.append(
            (
                f"{source} -> {target}",
                f"{count}x",
                say("{count} arrived changed", count=wrong) if wrong else say("as sent"),
                said(_PEER_ACCESS[peer]),
            )
        )
    if rows:
        yield say("copies between GPUs, checksums at both ends")
        yield from align_columns(rows, right=(1,), indent="  ")


def _parallel_lines(call: ParallelCall) -> Iterator[str]:
    yield say("{what}: {place}", what=parallel_title(call), place=parallel_summary(call))
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
            format_bytes(call.peak(replica.device)) if call.peak(replica.device) else "",
            *((format_seconds(replica.seconds),) if is_timed else ()),
        )
        for replica in call.replicas
    ]  # fmt: skip
    if rows:
        yield from align_columns([header, *rows], right=range(1, len(header)), indent="  ")
    yield from (f"  {words}" for words in parallel_words(call))
    for each in parallel_advice(call):
        yield label_line(say("help"), each.text)
        yield from (f"        {line}" for line in each.code.splitlines())
