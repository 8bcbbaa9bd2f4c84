"""A trace as text: findings first, then the moves grouped by line, then what was checked and what was not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.records.trace import Trace
from devwidget.report.report_parts import Part, Sentence, Table
from devwidget.report.style.safe_text import text_of
from devwidget.report.style.units import count_words, format_bytes, format_seconds
from devwidget.report.style.words import (
    and_more,
    code_word,
    device_list,
    first_line,
    label_line,
    module_words,
    row_words,
    site_words,
    tensor_words,
    wrap_list,
)
from devwidget.report.text.advice import parallel_advice
from devwidget.report.text.draw_text import MOST_COLUMNS, draw_lines, line_table
from devwidget.report.text.failure_card import failure_lines
from devwidget.report.text.finding_text import finding_text
from devwidget.report.text.memory_words import memory_parts
from devwidget.report.text.parallel_words import parallel_summary, parallel_title, parallel_words
from devwidget.views.clock import with_real_times
from devwidget.views.hops import Hop, WaitingLine, group_hops, group_waits, join_by_line
from devwidget.views.parallel import ParallelCall, parallel_calls

_MOST_CLEAN = 15
"""Lines of a report that finds nothing."""
_JOINED = attrgetter("examples"), attrgetter("modules")
_PEER_ACCESS = {"yes": Message("direct"), "no": Message("through the host"), "unknown": Message("peer access unknown")}


@presents("text", Trace)
def trace_text(trace: Trace) -> str:
    """The report of one recording."""
    blocks = filter(None, ["\n\n".join(_report_blocks(trace)), text_of(check_lines(trace))])
    return "\n\n".join(blocks).rstrip()


def trace_blocks(trace: Trace) -> list[str]:
    """What a step did, block by block, and how many kinds of fault were looked for."""
    return [*_report_blocks(trace), *([_checked_words(trace)] if trace.checked else [])]


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


def _report_blocks(trace: Trace) -> list[str]:
    """The report without what was checked; the tables of a clean one have as many rows as there is room for."""
    trace = with_real_times(trace)
    classes = {event.path: event.class_name for event in trace.modules}
    blocks = [text_of([say("Trace: {summary}", summary=summary_words(trace)), *failure_lines(trace)])]
    blocks += [finding_text(finding, classes.get(finding.module or "", "")) for finding in trace.findings]
    if _is_clean(trace):
        return [*blocks, *_clean_block(trace)]
    tables = ([part] for part in (*_line_tables(trace), *_copy_tables(trace)))
    parallel = map(_parallel_parts, parallel_calls(trace))
    return [*blocks, *filter(None, (text_of(draw_lines(each)) for each in (*tables, *parallel, memory_parts(trace))))]


def _is_clean(trace: Trace) -> bool:
    """Whether a trace has nothing to tell but that all is well."""
    return not (trace.error or trace.findings or trace.parallel or any(curve.refused for curve in trace.memory))


def _clean_block(trace: Trace) -> list[str]:
    """All tables without what lived at the peaks, the first rows of each."""
    memory = list(memory_parts(trace))
    notes = [part for part in memory if isinstance(part, Sentence)]
    tables = [*_line_tables(trace), *_copy_tables(trace), *[part for part in memory if isinstance(part, Table)][:1]]
    taken = 3 + len(tables) + len(notes) + len(list(check_lines(trace)))  # the summary, two empty lines, and the titles
    most = _share_rows([len(table.rows) for table in tables], _MOST_CLEAN - taken)
    cut = [replace(table, most=rows) for table, rows in zip(tables, most, strict=True)]
    if cut:
        return [text_of(draw_lines([*cut, *notes]))]
    return []


def _share_rows(counts: Sequence[int], room: int) -> list[int]:
    """Rows of each table: one at least, then one more for each in turn while there is room."""
    shown = [1 for _ in counts]
    for at in (at for _ in range(max(counts, default=0)) for at in range(len(counts))):
        shown[at] += sum(shown) < room and shown[at] < counts[at]
    return shown


def check_lines(trace: Trace) -> Iterator[str]:
    """What was checked, and what was not and why."""
    if trace.checked:
        rules = [*wrap_list(say("checked: {rules}", rules=", ".join(trace.checked)), MOST_COLUMNS)]
    else:
        rules = []
    yield from [_checked_words(trace)] if len(rules) > 1 and _is_clean(trace) else rules
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


def _line_tables(trace: Trace) -> Iterator[Table]:
    """What crossed and what was waited for, each line of the program once."""
    hops = join_by_line(group_hops(trace.moves), lambda hop: hop.site or (hop.cause, hop.source, hop.target))
    waits = join_by_line(group_waits(trace.waits), lambda line: line.site or line)
    rows = [_hop_cells(line) for line in sorted(hops, key=lambda line: -sum(hop.bytes for hop in line))]
    if rows:
        yield line_table(say("moves, by line"), rows, (1, 2))
    if waits:
        yield line_table(say("waits of the host, by line"), [_wait_cells(line) for line in waits], (1,))


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


def _copy_tables(trace: Trace) -> Iterator[Table]:
    """A row for each pair of GPUs; nothing where no copy was verified."""
    pairs = dict.fromkeys((each.source, each.target, each.peer_access) for each in trace.copy_checks)
    rows = []
    for source, target, peer in pairs:
        checks = [each for each in trace.copy_checks if (each.source, each.target) == (source, target)]
        count, wrong = sum(each.count for each in checks), sum(each.wrong for each in checks)
        if wrong:
            arrived = say("{count} arrived changed", count=wrong)
        else:
            arrived = say("as sent")
        rows.append((f"{source} -> {target}", f"{count}x", arrived, said(_PEER_ACCESS[peer])))
    if rows:
        yield line_table(say("copies between GPUs, checksums at both ends"), rows, (1,))


def _parallel_parts(call: ParallelCall) -> Iterator[Part]:
    yield Sentence(say("{what}: {place}", what=parallel_title(call), place=parallel_summary(call)))
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
        yield Sentence(label_line(say("help"), each.text))
        yield from (Sentence(f"        {line}") for line in each.code.splitlines())
