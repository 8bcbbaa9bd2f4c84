"""A report as JSON for scripts and agents: whole, or within a few kilobytes; `findings.schema.json` describes it."""

from __future__ import annotations

import json
import pathlib
from dataclasses import asdict
from typing import Any

from devwidget._version import __version__
from devwidget.records.finding import SEVERITIES, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Trace
from devwidget.report.style.words import path_of
from devwidget.report.writers import Writer
from devwidget.views.hops import group_hops

Json = dict[str, Any]
VERSION = 2
"""Counts changes after which an older reader is wrong; fields that come are none."""
MOST_BYTES = 4000
_MOST_CHARACTERS = 240
Root = str | pathlib.Path


def findings_json(trace: Trace, root: Root = ".") -> str:
    """Everything that was found, every hop and every peak; paths are written against `root`."""
    report = _report_head(trace)
    report["findings"] = [_finding_json(finding, root) for finding in trace.findings]
    report["hops"] = _hops_json(trace, root)
    report["step_runs"], report["noticed"], report["peaks"] = trace.step_runs, list(trace.noticed), []
    for curve in trace.memory:
        if curve.peak:
            report["peaks"].append({"device": str(curve.device), "bytes": curve.peak.allocated})
    return json.dumps(report, indent=1)


def brief_json(trace: Trace, root: Root = ".", most_bytes: int = MOST_BYTES) -> str:
    """What fits: findings as they come, the worst first, each with its lines and its best edit; then hops, the dearest first.

    `left_out` counts what did not fit.
    """
    report = {**_report_head(trace), "findings": [], "hops": [], "left_out": {"findings": 0, "hops": 0}}
    report["error"] = _clip_text(report["error"])
    for finding in trace.findings:
        whole = _brief_finding(finding, root)
        _add_first_fitting(report, "findings", [whole, {**whole, "fix": None}], most_bytes)
    for hop in _hops_json(trace, root):
        _add_first_fitting(report, "hops", [hop], most_bytes)
    return _encode_report(report)


def _add_first_fitting(report: Json, name: str, forms: list[Json], most_bytes: int) -> None:
    """Add the first form that fits, unless an earlier item did not: the order tells what matters."""
    for form in forms:
        report[name].append(form)
        # The counts may grow by so much.
        if not report["left_out"][name] and len(_encode_report(report)) <= most_bytes - len("000"):
            return
        report[name].pop()
    report["left_out"][name] += 1


def _encode_report(report: Json) -> str:
    """ASCII, so that a character is a byte."""
    return json.dumps(report, separators=(",", ":"))


def _report_head(trace: Trace) -> Json:
    counts = dict.fromkeys(SEVERITIES, 0)
    for finding in trace.findings:
        counts[finding.severity] += 1
    return {
        "version": VERSION,
        "devwidget": __version__,
        "virtual_gpus": trace.virtual_gpus,
        "counts": counts,
        "error": trace.error,
    }


def _finding_json(finding: Finding, root: Root) -> Json:
    return {
        **_read_fields(finding, "kind", "severity", "headline", "why", "module"),
        "fault": _site_json(finding.fault, root),
        "birth": _site_json(finding.birth, root),
        "operands": list(finding.operands),
        "notes": list(finding.notes),
        "fixes": [_fix_json(fix, root) for fix in finding.fixes],
    }


def _brief_finding(finding: Finding, root: Root) -> Json:
    fix = None
    for each in sorted(finding.fixes, key=lambda each: not each.edits)[:1]:
        fix = _fix_json(each, root)
    return {
        **_read_fields(finding, "kind", "severity", "module"),
        "headline": _clip_text(finding.headline),
        "fault": _line_words(finding.fault, root),
        "birth": _line_words(finding.birth, root),
        "fix": fix,
    }


def _read_fields(record: Finding | Fix, *names: str) -> Json:
    return {name: getattr(record, name) for name in names}


def _fix_json(fix: Fix, root: Root) -> Json:
    found = _read_fields(fix, "summary", "confidence", "verified", "code")
    found["edits"] = [asdict(edit) | {"file": path_of(edit.file, root) or edit.file} for edit in fix.edits]
    if fix.not_tried:
        found["not_tried"] = fix.not_tried
    return found


def _hops_json(trace: Trace, root: Root) -> list[Json]:
    return [
        {
            "source": str(hop.source), "target": str(hop.target), "cause": hop.cause, "count": hop.count, "bytes": hop.bytes,
            "line": _line_words(hop.site, root),
        }
        for hop in group_hops(trace.moves)
    ]  # fmt: skip


def _site_json(site: Site | None, root: Root) -> Json | None:
    if site is None:
        return None
    return {"file": path_of(site.file, root) or site.file, "line": site.line, "text": site.text, "function": site.function}


def _line_words(site: Site | None, root: Root) -> str | None:
    if site is None:
        return None
    return f"{path_of(site.file, root) or site.file}:{site.line}"


def _clip_text(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[: _MOST_CHARACTERS - 1]}…"


WRITERS = {
    "json": Writer(Message("the report as JSON, for scripts"), findings_json),
    "brief": Writer(Message("the same within 4 kB, for agents"), brief_json),
}
