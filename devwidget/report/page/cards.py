"""Findings, hops and details as small dictionaries of texts that a page draws unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from devwidget.language.speaking import both, said, say, say_count
from devwidget.records.finding import Finding, Fix
from devwidget.records.site import Site
from devwidget.records.snapshot import Snapshot, TensorFacts
from devwidget.records.trace import Fault, Trace
from devwidget.report.page.edit_rows import edit_rows
from devwidget.report.style.units import format_bytes, format_count, some_seconds
from devwidget.report.style.words import (
    code_word,
    examples_words,
    module_words,
    row_words,
    site_words,
    tensor_words,
    translate_finding,
)
from devwidget.report.text.finding_text import birth_words, confidence_words, finding_text, further_places, where_words
from devwidget.report.text.memory_words import line_card
from devwidget.report.text.snapshot_text import bar_words, bytes_by_device
from devwidget.views.clock import Clock
from devwidget.views.hops import group_hops
from devwidget.views.memory import MemoryBar
from devwidget.views.placement import PlacementTable
from devwidget.views.sums import group_by, total

Card = dict[str, Any]
_MOST_LINES = 500


def finding_card(
    finding: Finding, row: int, class_name: str = "", at: tuple[float, float] | None = None, faults: Iterable[Fault] = ()
) -> Card:
    """One finding.

    Args:
        row: of the module tree to jump to, -1 for none.
        at: where it is on the timeline, by order and by time.
        faults: those that it explains, which know the misplaced tensors.
    """
    finding = translate_finding(finding)
    card: Card = {
        "kind": finding.kind,
        "severity": finding.severity,
        "headline": finding.headline,
        "module": "",
        "class": "",
        "row": row,
        "at": at,
        "place": site_words(finding.fault or finding.birth),
        "why": finding.why,
        "operands": _operand_cards(finding, faults),
        "fault": _source_card(finding.fault),
        "birth": None,
        "birthWords": birth_words(finding),
        "notes": [*finding.notes, *further_places(finding)],
        "fixes": list(map(fix_card, finding.fixes)),
        "text": finding_text(finding, class_name),
    }
    if where_words(finding):
        card["module"] = module_words(finding.module)
    if finding.module is not None:
        card["class"] = class_name
    if finding.birth != finding.fault:
        card["birth"] = _source_card(finding.birth)
    return card


def _operand_cards(finding: Finding, faults: Iterable[Fault]) -> list[Card]:
    """The tensors involved, misplaced ones first and marked."""
    misplaced = set[str]()
    for fault in faults:
        misplaced.update(str(each) for each in fault.operands if each.stray)
    cards = [{"text": text, "culprit": text in misplaced} for text in finding.operands]
    return sorted(cards, key=lambda card: not card["culprit"])


def fix_card(fix: Fix) -> Card:
    """A fix, its edits as rows of a difference."""
    words, state = confidence_words(fix), "words"
    if fix.verified:
        words, state = words + say(": the step ran with this edit"), "tried"
    elif fix.fails:
        state = "fails"
    elif fix.edits:
        state = "untried"
    edits = []
    for edit in fix.edits:
        edits.append({"place": site_words(edit.site), "file": edit.file, "rows": edit_rows(edit), "text": edit.text})
    offered = bool(fix.edits and fix.not_tried and not fix.runs)
    return {"summary": fix.summary, "code": fix.code, "confidence": words, "edits": edits, "offered": offered, "state": state}


def meter_cards(bars: Iterable[MemoryBar]) -> list[Card]:
    """One for each GPU: what is in use of it, shares of its size, and whether something did not fit."""
    return [_meter_card(bar) for bar in bars if bar.device.is_accelerator]


def _meter_card(bar: MemoryBar) -> Card:
    short, peak, words = format_bytes(bar.in_use), 0, [bar_words(bar)]
    if bar.peak > bar.in_use:
        peak = bar.peak
        short = say("peak {size}", size=format_bytes(peak))
    if bar.refused:
        words.append(say("more was refused"))
    return {
        "device": str(bar.device),
        "used": bar.in_use / max(bar.total, 1),
        "peak": peak / max(bar.total, 1),
        "refused": bool(bar.refused),
        "short": short,
        "total": say("of {total}", total=format_bytes(bar.total)),
        "words": row_words(words),
    }


def _source_card(site: Site | None) -> Card | None:
    if site is None:
        return None
    return {"place": site_words(site), "file": site.file, "line": site.line, "function": site.function, "text": site.text}


def hop_cards(trace: Trace) -> list[Card]:
    """The hops by line, dearest first."""
    clock = Clock(trace)
    cards = []
    for hop in group_hops(trace.moves)[:_MOST_LINES]:
        card = {
            "source": str(hop.source),
            "target": str(hop.target),
            "cause": hop.cause,
            "phase": hop.phase,
            "count": hop.count,
            "bytes": format_bytes(hop.bytes),
            "seconds": some_seconds(hop.seconds),
            "what": examples_words(hop.examples, 3),
            "at": (hop.number, clock.at(hop.number)),
        }
        cards.append(card | line_card(hop.modules, hop.site))
    return cards


def crossing_cards(trace: Trace) -> list[Card]:
    """What crosses from one device to another, all lines together; moves that only the trace made are apart."""
    ways = group_by(group_hops(trace.moves), lambda hop: (str(hop.source), str(hop.target), hop.cause == "healed"))
    cards = []
    for (source, target, healed), hops in ways.items():
        count, size = total(hops, "count"), format_bytes(total(hops, "bytes"))
        cards.append({"source": source, "target": target, "healed": healed, "count": count, "bytes": size})
    return cards


def finding_place(finding: Finding, clock: Clock) -> tuple[float, float] | None:
    """Where its first fault is on the timeline."""
    if finding.explains:
        return (min(finding.explains), clock.at(min(finding.explains)))
    return None


def row_detail(snapshot: Snapshot, table: PlacementTable, row: int) -> Card:
    """What opens below a row: where its class is defined, and each tensor."""
    module, tensor = snapshot.modules[table.modules[row]], table.tensors[row]
    class_name, tensors = module.class_name, module.tensors
    if tensor is not None:
        class_name, tensors = say("plain attribute of {class_name}", class_name=class_name), (tensor,)
    facts = []
    if not module.training:
        facts.append(say("eval mode"))
    if table.notes[row]:
        facts.append(said(table.notes[row]))
    return {
        "path": table.paths[row] or say("the model itself"),
        "class": class_name,
        "defined": _source_card(module.defined),
        "facts": facts,
        "tensors": list(map(_tensor_card, tensors)),
    }


def _tensor_card(tensor: TensorFacts) -> Card:
    role, grad, tied = code_word(tensor.role), "", ""
    if tensor.role == "attribute":
        role = say("plain attribute")
    if tensor.grad_bytes:
        grad = say("{size} on {device}", size=format_bytes(tensor.grad_bytes), device=tensor.grad_device)
    elif tensor.requires_grad:
        grad = say("required")
    if tensor.tied_to:
        tied = say("tied to {other}", other=tensor.tied_to)
    return {
        "name": tensor.name,
        "role": role,
        "type": tensor_words(tensor.dtype, tensor.shape),
        "device": str(tensor.device),
        "bytes": format_bytes(tensor.bytes),
        "grad": grad,
        "note": " · ".join(filter(None, (tied, said(tensor.note)))),
    }


def header_card(snapshot: Snapshot, table: PlacementTable) -> Card:
    """The first line of a panel; each device with the bytes of the model on it."""
    if not len(table):
        return {"title": say("no model"), "parameters": "", "bytes": "", "devices": [], "dtypes": []}
    number = table.parameters[0]
    return {
        "title": table.classes[0],
        "parameters": say_count(*both("{count} param", "{count} params"), number, format_count(number)),
        "bytes": format_bytes(table.bytes[0]),
        "devices": [[str(device), format_bytes(size)] for device, size in bytes_by_device(snapshot).items()],
        "dtypes": list(table.dtypes_of(0)),
    }
