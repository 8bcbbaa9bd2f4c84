"""Findings as SARIF 2.1.0: forges and editors show each at its line, with the suggested change.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import urllib.parse
from collections.abc import Iterable
from typing import Any

from devwidget._version import __version__
from devwidget.language.speaking import language, said
from devwidget.records.finding import Edit, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.report.style.words import path_of
from devwidget.report.text.finding_text import birth_words, confidence_words, extra_notes
from devwidget.report.writers import Writer

Json = dict[str, Any]
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_ROOT = "SRCROOT"
_LANGUAGES = {"en": "en-US", "zh": "zh-CN"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(findings: Iterable[Finding], root: str | pathlib.Path = ".") -> str:
    """A SARIF log with one run; paths are written against the folder of the repository."""
    given = list(dict.fromkeys(findings))
    firsts: dict[str, Finding] = {}
    for finding in given:
        firsts.setdefault(finding.kind, finding)
    rules = list(map(_rule_json, firsts.values()))
    run = {
        "tool": {"driver": {"name": "devwidget", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "language": _LANGUAGES.get(language(), language()),
        "results": [_result_json(finding, root) for finding in given],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule_json(first: Finding) -> Json:
    """A kind of finding, in the words of the first one."""
    words, why = first.kind.replace("-", " "), said(first.why) or first.kind.replace("-", " ")
    helps = [said(fix.summary) for fix in first.fixes]
    return {
        "id": first.kind,
        "name": first.kind.title().replace("-", ""),
        "shortDescription": {"text": _as_sentence(words)},
        "fullDescription": {"text": _as_sentence(why)},
        "help": {"text": "\n".join([why, *helps]), "markdown": "\n".join([why, "", *(f"* {each}" for each in helps)])},
        "defaultConfiguration": {"level": _LEVELS[first.severity]},
    }


def _as_sentence(text: str) -> str:
    """Forges show the first sentence, and look for its end."""
    return text if text.endswith((".", "。")) else f"{text}."


def _result_json(finding: Finding, root: str | pathlib.Path) -> Json:
    places = []
    for site in filter(None, (finding.fault, finding.birth)):
        if path_of(site.file, root) and _place_json(site, root) not in places:
            places.append(_place_json(site, root))
    texts = filter(None, (finding.headline, finding.why, *finding.notes, *extra_notes(finding)))
    fixes = []
    for fix in finding.fixes:
        if fix.edits and all(path_of(edit.file, root) for edit in fix.edits):
            fixes.append(_fix_json(fix, root))
    result: Json = {
        "ruleId": finding.kind,
        "level": _LEVELS[finding.severity],
        "message": {"text": "\n".join(map(said, texts))},
        "partialFingerprints": {"devwidget/v1": _fingerprint_lines(finding, root)},
        "locations": [],
        "fixes": fixes,
    }
    if places:
        result["locations"] = [{"physicalLocation": places[0]}]
    if len(places) > 1:
        result["relatedLocations"] = [{"physicalLocation": places[1], "message": {"text": birth_words(finding)}}]
    if finding.module is not None:
        result["properties"] = {"module": finding.module}
    return result


def _fingerprint_lines(finding: Finding, root: str | pathlib.Path) -> str:
    """A fingerprint of what the lines say, without their numbers: it stays when lines are moved about."""
    words = [finding.kind, finding.module or ""]
    for site in filter(None, (finding.fault, finding.birth)):
        words += [path_of(site.file, root), site.text]
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _place_json(site: Site, root: str | pathlib.Path) -> Json:
    return {"artifactLocation": _file_json(site.file, root), "region": {"startLine": max(site.line, 1)}}


def _file_json(file: str, root: str | pathlib.Path) -> Json:
    path = path_of(file, root)
    if not pathlib.PurePosixPath(path).is_absolute() and not pathlib.PureWindowsPath(path).is_absolute():
        return {"uri": urllib.parse.quote(path), "uriBaseId": _ROOT}
    return {"uri": f"file:///{urllib.parse.quote(path).removeprefix('/')}"}


def _fix_json(fix: Fix, root: str | pathlib.Path) -> Json:
    changes: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        changes.setdefault(edit.file, []).append(edit)
    of_files = []
    for file, edits in changes.items():
        of_files.append({"artifactLocation": _file_json(file, root), "replacements": list(map(_replacement_json, edits))})
    return {"description": {"text": f"{said(fix.summary)} ({confidence_words(fix)})"}, "artifactChanges": of_files}


def _replacement_json(edit: Edit) -> Json:
    """Whole lines: put in before a line, taken out with their line break, or exchanged without it."""
    region: Json = {"startLine": edit.first, "startColumn": 1}
    if edit.last < edit.first:
        return {
            "deletedRegion": {**region, "endLine": edit.first, "endColumn": 1},
            "insertedContent": {"text": f"{edit.text}\n"},
        }
    if not edit.text:
        return {"deletedRegion": {**region, "endLine": edit.last + 1, "endColumn": 1}}
    end = {"endLine": edit.last, "endColumn": len(edit.old_lines[-1]) + 1}
    return {"deletedRegion": {**region, **end}, "insertedContent": {"text": edit.text}}


WRITERS = {
    "sarif": Writer(
        Message("the findings as SARIF 2.1.0, with their fixes, for a code host or an editor"),
        lambda record, root: sarif_log(record.findings, root),
    )
}
