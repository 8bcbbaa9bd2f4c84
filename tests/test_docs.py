"""The pages that are written from the code are up to date, and what they show is what happens."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

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


def blocks(page):
    """The fenced blocks of a page."""
    return re.findall(r"```\w*\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


def run_tests(folder, program, *options):
    """What pytest prints of `program`, as its own test file."""
    (folder / "test_placement.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment).stdout


def test_the_page_on_test_suites_shows_what_pytest_prints(tmp_path):
    program, report, _, last = blocks("check.md")
    printed = run_tests(tmp_path, program, "-p", "devwidget.pytest_plugin", "--devwidget-gpus=2").splitlines()
    shown = [re.sub(r"^E +", "", line) for line in printed]
    for line in (*report.splitlines(), *last.splitlines()):
        assert re.sub(r"^E *", "", line) in shown
    assert printed[-1].startswith("3 failed")


@pytest.mark.slow
def test_the_repair_on_the_page_on_test_suites_repairs(tmp_path):
    program, report, *_ = blocks("check.md")
    repair = re.search(r"`__init__`\n.*\n.*\nE +\+ (.*)", report)[1]
    printed = run_tests(tmp_path, program.replace("self.scale = torch.ones(4)", repair))
    assert "1 failed, 2 passed" in printed


def test_every_picture_is_shown_and_small():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = "".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = list((ROOT / "docs" / "pictures").glob("*.png"))
    assert len(pictures) > 5
    assert [each.name for each in pictures if f"pictures/{each.name}" not in texts] == []
    assert [each.name for each in pictures if each.stat().st_size > 300_000] == []
    named = re.findall(r"pictures/([\w-]+\.png)", texts)
    assert set(named) == {each.name for each in pictures}
