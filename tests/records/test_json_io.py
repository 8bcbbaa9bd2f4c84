"""Files of records: what is saved loads, and everything else is refused with the place where it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

import devwidget
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import dumps, list_kinds, loads
from tests.every_view import show_all
from tests.saved_records import real_files, real_records
from tests.test_imports import fresh
from tests.views.builders import one_step, split_model


def edited(record: Any, *path: str | int, value: Any) -> str:
    """The file of a record with one place changed; `...` as value takes it out."""
    envelope = json.loads(dumps(record))
    at = envelope
    for part in path[:-1]:
        at = at[part]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(envelope)


def refused(text: str) -> str:
    with pytest.raises(ValueError, match="devwidget") as caught:
        loads(text)
    assert type(caught.value) is UnreadableError
    return caught.value.what.removeprefix("not a saved devwidget record: ")


def test_what_is_saved_loads_equal_and_shows_in_every_view() -> None:
    for record, text in zip(real_records(), real_files(), strict=True):
        assert loads(text) == record
        show_all(loads(text), whole=True)


@pytest.mark.parametrize(("path", "value", "message"), [
    (("data", "moves", 2, "source", "kind"), None, "moves[2].source.kind: expected a text, got None"),
    (("data", "moves", 1, "bytes"), 10**400,
     f"moves[1].bytes: expected a whole number of 0 or more, got 1{'0' * 17}...{'0' * 19}"),
    (("data", "moves", 1, "bytes"), True, "moves[1].bytes: expected a whole number of 0 or more, got True"),
    (("data", "moves", 0, "shape"), [8, "x"], "moves[0].shape[1]: expected a whole number of -1 or more, got 'x'"),
    (("data", "moves", 0, "bytes"), ..., "moves[0]: expected a Move with bytes"),
    (("data", "findings", 0, "severity"), "fatal", "findings[0].severity: expected one of error, warning, info, got 'fatal'"),
    (("data", "seconds"), float("nan"), "seconds: expected a number of 0 or more, got nan"),
    (("data", "modules"), {}, "modules: expected a list, got {}"),
    (("record",), "Model", f"expected one of {', '.join(list_kinds())} as `record`, got 'Model'"),
    (("devwidget",), True, "expected a whole number of 1 or more as the version `devwidget`, got True"),
])  # fmt: skip
def test_a_wrong_value_is_refused_with_its_path(path: tuple[str | int, ...], value: Any, message: str) -> None:
    assert refused(edited(one_step(), *path, value=value)) == message


@pytest.mark.parametrize(("path", "value", "message"), [
    ((3, "parent"), 5, "modules[3].parent: expected the index of an earlier module"),
    ((0, "parent"), 0, "modules[0].parent: expected -1 for the root"),
    ((2, "tensors", 0, "shape"), [2**40, 2**40], "modules[2].tensors[0].shape: expected fewer than 2**63 elements"),
])  # fmt: skip
def test_a_tree_that_no_view_can_show_is_refused(path: tuple[str | int, ...], value: Any, message: str) -> None:
    assert refused(edited(split_model(), "data", "modules", *path, value=value)) == message


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", "NaN", "[" * 100_000, '{"a":' * 100_000, "\ufeff{}", "9" * 5000])
def test_what_is_no_file_of_ours_is_refused(text: str) -> None:
    assert refused(text)


def test_a_field_of_a_newer_version_is_ignored_and_a_missing_one_has_its_default() -> None:
    assert loads(edited(one_step(), "data", "moves", 0, "colour", value={"deep": [[1]]})) == one_step()
    assert loads(edited(one_step(), "data", "virtual_gpus", value=...)).virtual_gpus == 0


@pytest.mark.parametrize("engine", ["mode", "profiler"])
def test_a_trace_that_names_the_engine_that_recorded_it_still_loads(engine: str) -> None:
    assert loads(edited(one_step(), "data", "engine", value=engine)) == one_step()


def test_a_newer_schema_is_named() -> None:
    envelope = json.loads(dumps(one_step())) | {"devwidget": 2, "data": {"unknown": []}}
    message = f"saved by a newer devwidget, with schema 2; this is {devwidget.__version__}"
    assert refused(json.dumps(envelope)) == message


def test_a_whole_number_of_seconds_is_read_as_a_float() -> None:
    assert type(loads(edited(one_step(), "data", "seconds", value=3)).seconds) is float


@pytest.mark.process
def test_every_record_is_known_by_name_to_a_reader_that_was_imported_alone() -> None:
    program = """
import importlib, pkgutil
import devwidget
from devwidget.records.loading import json_io
known = set(json_io.list_kinds())
for module in pkgutil.walk_packages(devwidget.__path__, "devwidget."):
    if "records" in module.name:
        importlib.import_module(module.name)
print("Trace" in known, sorted(set(json_io.saved_kinds) - known))
"""
    assert fresh(program) == "True []\n"
