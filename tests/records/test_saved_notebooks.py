"""The trace that a notebook has saved with a panel: found by cell and name, and by nothing else."""

import json

import pytest

from devwidget.records.loading.saved_notebooks import MIME, find_trace, pack_trace
from devwidget.records.trace import Trace
from devwidget.views.compare import compare_traces
from tests.views.builders import one_step


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    path = tmp_path / "mine.ipynb"
    path.write_text("{}")
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    return path


def save(notebook, data, cell="a"):
    text = {"cells": [{"id": "first"}, {"id": cell, "outputs": [{"output_type": "stream"}, {"data": data}]}]}
    notebook.write_text(json.dumps(text))


def test_what_a_comparison_reads_comes_back(notebook):
    trace = one_step()
    save(notebook, {"text/plain": "panel", **pack_trace("model", trace)})
    found = find_trace("model", "a")
    other = Trace(error="ValueError: none")
    assert compare_traces(found, other) == compare_traces(trace, other)


@pytest.mark.parametrize(("name", "cell"), [("other", "a"), ("model", "b"), ("", "a")])
def test_a_trace_of_another_model_or_cell_is_not_taken(notebook, name, cell):
    save(notebook, pack_trace("model", one_step()))
    assert find_trace(name, cell) is None


@pytest.mark.parametrize("trace", ["", "AAAA", None, 3, pack_trace("", Trace())])
def test_what_something_else_has_written_is_passed_over(notebook, trace):
    save(notebook, {MIME: {"name": "model", "trace": trace}})
    assert find_trace("model", "a") is None
    notebook.write_text("[1, 2")
    assert find_trace("model", "a") is None


def test_without_a_notebook_nothing_is_saved(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert pack_trace("model", one_step()) == {}
    assert find_trace("model", "a") is None
