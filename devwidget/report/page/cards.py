"""Findings, hops and details as small dictionaries of words that a page can draw as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from devwidget.language.speaking import said, say
from devwidget.records.finding import Finding, Fix
from devwidget.records.site import Site
from devwidget.records.snapshot import Snapshot, TensorFacts
from devwidget.records.trace import Fault, Trace
from devwidget.report.style.units import format_bytes, format_count, format_seconds
from devwidget.report.style.words import (
    and_more,
    code_word,
    first_line,
    module_words,
    site_words,
    tensor_words,
    translate_finding,
)
from devwidget.report.text.finding_text import changed_lines, confidence_words, finding_text, further_places
from devwidget.report.text.snapshot_text import bytes_by_device
from devwidget.views.clock import Clock
from devwidget.views.hops import Hop, group_hops, group_waits
from devwidget.views.placement import PlacementTable

Card = dict[str, Any]


def finding_card(
    finding: Finding, row: int, class_name: str = "", at: tuple[float, float] | None = None, faults: Iterable[Fault] = ()
) -> Card:
    """One finding.

    Args:
        row: of the module tree to jump to, -1 for none.
        at: where it is on the timeline, by order and by time.
        faults: those that it explains, which know what stood in the wrong place.
    """
    finding = translate_finding(finding)
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "headline": finding.headline,
        "module": module_words(finding.module),
        "class": class_name if finding.module is not None else "",
        "row": row,
        "at": at,
        "why": finding.why,
        "operands": _operand_cards(finding, faults),
        "fault": _source_card(finding.fault),
        "birth": _source_card(finding.birth) if finding.birth != finding.fault else None,
        "notes": [*finding.notes, *further_places(finding)],
        "fixes": [_fix_card(fix) for fix in finding.fixes],
        "text": finding_text(finding, class_name),
    }


def _operand_cards(finding: Finding, faults: Iterable[Fault]) -> list[Card]:
    """The tensors that met; those in the wrong place first, and told so."""
    strays = {(f"{o.name} ", f" {o.device}") for fault in faults for o in fault.operands if o.stray}
    culprits = {text for text in finding.operands for start, end in strays if text.startswith(start) and text.endswith(end)}
    cards = [{"text": text, "device": text.rpartition(" ")[2], "culprit": text in culprits} for text in finding.operands]
    return sorted(cards, key=lambda card: not card["culprit"])


def _fix_card(fix: Fix) -> Card:
    edits = [{"place": site_words(e.site), "file": e.file, "lines": changed_lines(e), "text": e.text} for e in fix.edits]
    words = confidence_words(fix) + (say(": the step ran with this edit") if fix.verified else "")
    offered = bool(fix.edits and fix.not_tried and not fix.runs)
    return {"summary": fix.summary, "code": fix.code, "confidence": words, "edits": edits, "offered": offered}


def _source_card(site: Site | None) -> Card | None:
    if site is None:
        return None
    return {"place": site_words(site), "file": site.file, "line": site.line, "function": site.function, "text": site.text}


def hop_cards(trace: Trace, most: int = 500) -> list[Card]:
    """The hops by line, dearest first."""
    clock = Clock(trace)
    return [_hop_card(hop) | {"at": (hop.number, clock.at(hop.number))} for hop in group_hops(trace.moves)[:most]]


def finding_place(finding: Finding, clock: Clock) -> tuple[float, float] | None:
    """Where its first fault is on the timeline."""
    return (min(finding.explains), clock.at(min(finding.explains))) if finding.explains else None


def _hop_card(hop: Hop) -> Card:
    return {
        "source": str(hop.source),
        "target": str(hop.target),
        "cause": hop.cause,
        "phase": hop.phase,
        "count": hop.count,
        "bytes": format_bytes(hop.bytes),
        "seconds": format_seconds(hop.seconds) if hop.seconds else "",
        "module": and_more(module_words(hop.modules[0]), len(hop.modules) - 1),
        "path": hop.modules[0],
        "what": ", ".join(tensor_words(*example) for example in hop.examples[:3]) + (", …" if len(hop.examples) > 3 else ""),
        "place": site_words(hop.site),
        "code": first_line(hop.site),
    }


def wait_cards(trace: Trace, most: int = 500) -> list[Card]:
    """The waits by line, those that waited most often first."""
    return [
        {
            "device": str(line.device),
            "count": line.count,
            "what": ", ".join(line.calls),
            "phase": ", ".join(map(code_word, line.phases)),
            "module": and_more(module_words(line.modules[0]), len(line.modules) - 1),
            "path": line.modules[0],
            "place": site_words(line.site or line.called),
            "code": first_line(line.site or line.called),
        }
        for line in group_waits(trace.waits)[:most]
    ]


def row_detail(snapshot: Snapshot, table: PlacementTable, row: int) -> Card:
    """What opens below a row: where its class is defined, and each tensor."""
    module = snapshot.modules[table.modules[row]]
    tensor = table.tensors[row]
    facts = [] if module.training else [say("eval mode")]
    return {
        "path": table.paths[row] or say("the model itself"),
        "class": module.class_name if tensor is None else say("plain attribute of {class_name}", class_name=module.class_name),
        "defined": _source_card(module.defined),
        "facts": [*facts, *([said(table.notes[row])] if table.notes[row] else [])],
        "tensors": [_tensor_card(each) for each in ([tensor] if tensor is not None else module.tensors)],
    }


def _tensor_card(tensor: TensorFacts) -> Card:
    grad = (
        say("{size} on {device}", size=format_bytes(tensor.grad_bytes), device=tensor.grad_device) if tensor.grad_bytes else ""
    )
    return {
        "name": tensor.name,
        "role": code_word(tensor.role) if tensor.role != "attribute" else say("plain attribute"),
        "type": tensor_words(tensor.dtype, tensor.shape),
        "device": str(tensor.device),
        "bytes": format_bytes(tensor.bytes),
        "grad": grad or (say("required") if tensor.requires_grad else ""),
        "note": " · ".join(
            filter(None, (say("tied to {other}", other=tensor.tied_to) if tensor.tied_to else "", said(tensor.note)))
        ),
    }


def header_card(snapshot: Snapshot, table: PlacementTable) -> Card:
    """The first line of a panel; each device with the bytes of the model on it."""
    if not len(table):
        return {"title": say("no model"), "parameters": "", "bytes": "", "devices": [], "dtypes": []}
    return {
        "title": table.classes[0],
        "parameters": say("{count} params", count=format_count(table.parameters[0])),
        "bytes": format_bytes(table.bytes[0]),
        "devices": [[str(device), format_bytes(size)] for device, size in bytes_by_device(snapshot).items()],
        "dtypes": list(table.dtypes_of(0)),
    }
