"""The pages that are written from the code are up to date, and what they show is what happens."""

import importlib.util
import pathlib
import re

import pytest
import torch

import devwidget
from devwidget.capture import torch_internals
from tests.test_imports import MAY_IMPORT

ROOT = pathlib.Path(__file__).parents[1]


def script(name):
    """A program of `docs/` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not torch.__version__.startswith(torch_internals.TESTED), reason="texts are those of the pinned torch")
def test_the_page_of_findings_is_what_the_rules_say_and_what_their_programs_print():
    build = script("build_findings")
    assert build.PAGE.read_text(encoding="utf-8") == build.page(), "run python docs/build_findings.py"


def test_the_pages_of_commands_and_calls_are_what_their_help_says():
    build = script("build_reference")
    devwidget.set_language("en")
    pages = {build.COMMAND_LINE: build.command_line_page(), build.API: build.api_page()}
    devwidget.set_language(None)
    stored = {path: path.read_text(encoding="utf-8") for path in pages}
    assert stored == pages, "run python docs/build_reference.py"


@pytest.mark.slow
def test_the_drawing_of_the_layers_has_the_arrows_of_the_imports_and_none_that_the_table_forbids():
    build = script("build_layers")
    found, drawn = build.arrows(), build.drawn(build.arrows())
    assert build.DRAWING.read_text(encoding="utf-8") == build.drawing(), "run python docs/build_layers.py"
    assert set(found) | set().union(*found.values()) == set(build.LAYERS)
    assert all(build.reached(layer, drawn) == build.reached(layer, found) for layer in found)
    assert all(targets <= MAY_IMPORT[layer] for layer, targets in drawn.items() if layer != "extras")


def test_every_picture_is_shown_and_small():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = list((ROOT / "docs" / "pictures").glob("*.png"))
    assert len(pictures) > 5
    assert [each.name for each in pictures if f"pictures/{each.name}" not in texts] == []
    assert [each.name for each in pictures if each.stat().st_size > 300_000] == []
    named = re.findall(r"pictures/([\w-]+\.png)", texts)
    assert set(named) == {each.name for each in pictures}
