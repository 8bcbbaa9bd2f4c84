"""Each extra can be deleted: what is left imports, does its work, and says of what is gone that it is not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from devwidget.extras import extras
from tests.test_imports import PACKAGE

ROOT = PACKAGE.parent
QUICK = (
    *("tests/records", "tests/views", "tests/report/test_text.py", "tests/rules/test_wrong_dtype.py"),
    *("tests/panel/test_panel.py", "tests/cli/test_commands.py", "tests/gpus/test_simulate.py"),
)
"""Of the tests of the core those that reach most of it and take seconds."""

EVERY_MODULE = """
import importlib, pkgutil
import devwidget
for module in pkgutil.walk_packages(devwidget.__path__, "devwidget."):
    needs_another_library = ".watch.integrations." in module.name
    if module.name != "devwidget.__main__" and not needs_another_library:
        importlib.import_module(module.name)
missing = [name for name in devwidget.__all__ if not hasattr(devwidget, name)]
print(len(devwidget.__all__), missing)
"""
ONE_STEP = """
import torch, devwidget
with devwidget.simulate(gpus=2):
    model = torch.nn.Linear(2, 2).cuda()
    trace = devwidget.trace(model, torch.ones(1, 2))
    print(devwidget.snapshot(model))
    print([finding.kind for finding in trace.findings])
    devwidget.show(model)
    for call in ("plan(model, torch.ones(1, 2))", "serve()", "watch(model)"):
        try:
            eval(f"devwidget.{call}")
        except AttributeError as error:
            print(error)
        except devwidget.DevwidgetError:
            print("another reason")
"""


def copy_without(names: Iterable[str], folder: Path) -> Path:
    """Copy the package and its tests, but for some extras."""
    shutil.copytree(PACKAGE, folder / "devwidget", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in names:
        shutil.rmtree(folder / "devwidget" / "extras" / name)
        shutil.rmtree(folder / "tests" / "extras" / name, ignore_errors=True)
    return folder


def run_in(folder: Path, *arguments: str) -> str:
    """What a process prints that takes the copy for the package."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    ran = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    return ran.stdout


@pytest.mark.process
def test_the_core_works_without_any(tmp_path: Path) -> None:
    folder = copy_without(extras(), tmp_path)
    assert run_in(folder, "-c", EVERY_MODULE).endswith(" []\n")
    said = run_in(folder, "-c", ONE_STEP)
    assert "['wrong-device']" in said
    assert [name for name in ("plan", "serve", "watch") if f"has no attribute '{name}'" not in said] == []
    run_in(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", extras())
def test_what_is_left_works_without_one(name: str, tmp_path: Path) -> None:
    """An extra that needs it goes along."""
    folder = copy_without([name, *(other for other, extra in extras().items() if name in extra.after)], tmp_path)
    assert run_in(folder, "-c", EVERY_MODULE).endswith(" []\n")
    assert "['wrong-device']" in run_in(folder, "-c", ONE_STEP)
    run_in(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK)
