"""What other programs read: SARIF, and JSON by its schema."""

from __future__ import annotations

import functools
import json
import pathlib
from collections import Counter
from typing import Any

import jsonschema
import pytest

from devwidget.extras.formats import findings_json as written
from devwidget.extras.formats.perfetto import perfetto_json
from devwidget.extras.formats.sarif import sarif_log
from devwidget.records.finding import Edit, Finding, Fix, apply_edits
from devwidget.records.site import Site
from devwidget.records.trace import Trace
from tests.saved_records import real_records

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
SCHEMA = json.loads((pathlib.Path(written.__file__).parent / "findings.schema.json").read_text(encoding="utf-8"))
PART_OF_SARIF = json.loads((HERE / "part_of_sarif.schema.json").read_text(encoding="utf-8"))
"""The objects of SARIF 2.1.0 that we write, with no others in them; what it wrote was also held against the whole schema."""


@functools.cache
def traces() -> tuple[Trace, ...]:
    found = tuple(record for record in real_records() if isinstance(record, Trace))
    assert any(trace.findings for trace in found)
    return found


def found_in(folder: pathlib.Path, edit: Edit, name: str = "model.py") -> Finding:
    site = Site(str(folder / name), edit.first, "x = y", "forward")
    return Finding("wrong-device", "error", "", "it stays", "because", fault=site, fixes=(Fix("move it", edits=(edit,)),))


def log_of(finding: Finding, root: pathlib.Path) -> dict[str, Any]:
    log = json.loads(sarif_log([finding], root))
    jsonschema.validate(log, PART_OF_SARIF)
    (result,) = log["runs"][0]["results"]
    return dict(result)


def replaced(text: str, replacement: dict[str, Any]) -> str:
    """What a program does that knows SARIF and not us."""
    region, lines = replacement["deletedRegion"], text.splitlines(keepends=True)
    at = [sum(map(len, lines[: region[f"{end}Line"] - 1])) + region[f"{end}Column"] - 1 for end in ("start", "end")]
    return text[: at[0]] + replacement.get("insertedContent", {"text": ""})["text"] + text[at[1] :]


@pytest.mark.parametrize("edit", [(2, 3, "new", "b\nc"), (3, 2, "put\nin", ""), (1, 2, "", "a\nb"), (4, 4, "é ends", "d")])
def test_the_replacement_makes_of_a_file_what_the_edit_makes(tmp_path: pathlib.Path, edit: tuple[int, int, str, str]) -> None:
    first, last, text, was = edit
    given = Edit(str(tmp_path / "model.py"), first, last, text, was)
    (change,) = log_of(found_in(tmp_path, given), tmp_path)["fixes"][0]["artifactChanges"]
    after = replaced("a\nb\nc\nd\n", change["replacements"][0])
    assert after.splitlines() == apply_edits(["a", "b", "c", "d"], [given])


def test_a_rule_says_what_is_wrong_why_and_what_helps(tmp_path: pathlib.Path) -> None:
    finding = found_in(tmp_path, Edit(str(tmp_path / "model.py"), 1, 1, "x", "y"))
    bare = Finding("needless-hop", "info", None, "it goes", "")
    log = json.loads(sarif_log([finding, bare, finding], tmp_path))
    jsonschema.validate(log, PART_OF_SARIF)
    first, second = log["runs"][0]["tool"]["driver"]["rules"]
    assert first == {
        "id": "wrong-device",
        "name": "WrongDevice",
        "shortDescription": {"text": "wrong device."},
        "fullDescription": {"text": "because."},
        "help": {"text": "because\nmove it", "markdown": "because\n\n* move it"},
        "defaultConfiguration": {"level": "error"},
    }
    assert (second["fullDescription"]["text"], second["defaultConfiguration"]["level"]) == ("needless hop.", "note")


def test_paths_are_below_the_root_or_whole_and_a_cell_has_none(tmp_path: pathlib.Path) -> None:
    edit = Edit(str(tmp_path / "a b.py"), 1, 1, "x", "y")
    inside = log_of(found_in(tmp_path, edit, "a b.py"), tmp_path)["locations"][0]["physicalLocation"]["artifactLocation"]
    assert inside == {"uri": "a%20b.py", "uriBaseId": "SRCROOT"}
    outside = log_of(found_in(tmp_path, edit, "a b.py"), tmp_path / "other")["locations"][0]["physicalLocation"]
    assert outside["artifactLocation"]["uri"] == f"file://{(tmp_path / 'a%20b.py').as_posix()}"
    cell = Finding("wrong-device", "error", None, "it stays", "", fault=Site("<ipython-input-5-abc>", 3))
    assert log_of(cell, tmp_path)["locations"] == []


def test_lines_that_move_keep_the_fingerprint(tmp_path: pathlib.Path) -> None:
    one, other = (found_in(tmp_path, Edit(str(tmp_path / "model.py"), line, line, "x", "y")) for line in (3, 9))
    marks = [log_of(finding, tmp_path)["partialFingerprints"] for finding in (one, other)]
    assert marks[0] == marks[1]


def test_real_traces_are_valid_sarif_and_by_our_schema_whole_and_brief() -> None:
    for trace in traces():
        log = json.loads(sarif_log(trace.findings, ROOT))
        jsonschema.validate(log, PART_OF_SARIF)
        assert len(log["runs"][0]["results"]) == len(trace.findings)
        whole, brief = json.loads(written.findings_json(trace, ROOT)), json.loads(written.brief_json(trace, ROOT))
        jsonschema.validate(whole, SCHEMA)
        jsonschema.validate(brief, SCHEMA)
        assert len(whole["findings"]) == len(trace.findings) == len(brief["findings"]) + brief["left_out"]["findings"]
        assert not trace.findings or brief["findings"]


def test_a_brief_report_fits_whatever_there_is_to_say(tmp_path: pathlib.Path) -> None:
    long = Edit(str(tmp_path / "model.py"), 1, 1, "é" * 3000, "x" * 3000)
    findings = tuple(found_in(tmp_path, long) for _ in range(3))
    short = found_in(tmp_path, Edit(str(tmp_path / "model.py"), 1, 1, "a", "b"))
    text = written.brief_json(Trace(findings=(*findings, *[short] * 100), error="e" * 9000), tmp_path)
    report = json.loads(text)
    jsonschema.validate(report, SCHEMA)
    assert len(text.encode()) <= written.MOST_BYTES
    assert report["findings"][0]["fix"] is None
    assert report["findings"][3]["fix"]["edits"]
    assert len(report["findings"]) + report["left_out"]["findings"] == 103


def test_real_traces_are_slices_counters_and_marks_for_perfetto() -> None:
    for trace in traces():
        events = json.loads(perfetto_json(trace))["traceEvents"]
        kinds = Counter(event["ph"] for event in events)
        assert (kinds["M"], kinds["X"]) == (3, len(trace.modules) + len(trace.moves))
        assert kinds["i"] == sum(bool(finding.explains) for finding in trace.findings)
        assert all(event["ts"] >= 0 and event.get("dur", 0) >= 0 for event in events if event["ph"] != "M")
        counted = [sum(event["args"].values()) for event in events if event["ph"] == "C"]
        assert counted == [point.allocated for curve in trace.memory for point in curve.points]
