"""An exported page is small enough to be sent, and all that it draws with is in it."""

import gzip
import hashlib
from importlib import resources

import pytest
import torch

import devwidget
from devwidget.report.page.assets import packed_plotly, static_text
from devwidget.report.page.html import panel_page
from tests.views.builders import one_step, split_model


def test_the_page_of_a_small_model_weighs_at_most_600_kb():
    assert len(panel_page(split_model(), one_step()).encode()) <= 600_000


@pytest.mark.slow
def test_the_page_of_gpt2_weighs_at_most_1_mb():
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=24))  # as many modules as with its 768
    tokens = torch.zeros(1, 8, dtype=torch.long)
    trace = devwidget.trace(model, {"input_ids": tokens, "labels": tokens})
    assert len(panel_page(devwidget.snapshot(model), trace).encode()) <= 1_000_000


def test_plotly_is_the_unchanged_file_that_its_note_names():
    note = resources.files("devwidget").joinpath("panel", "static", "plotly", "README.md").read_text(encoding="utf-8")
    assert f"`{hashlib.sha256(gzip.decompress(packed_plotly())).hexdigest()}`" in note


def test_what_the_page_is_drawn_with_is_the_file_that_its_note_names():
    digest = hashlib.sha256(static_text("preact/libraries.js").encode()).hexdigest()
    assert f"`{digest}`" in static_text("preact/README.md")
