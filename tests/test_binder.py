"""The Binder files agree with the project and with each other; no Docker needed."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
BINDER = ROOT / "binder"
CONDA_NAMES = {"torch": "pytorch", "sklearn": "scikit-learn"}


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((BINDER / "environment.yml").read_text(encoding="utf-8"))
    return found


def name_of(requirement: str) -> str:
    return re.split(r"[<>=!~ \[]", requirement, maxsplit=1)[0]


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def notebook_imports() -> set[str]:
    """Top-level names that the cells of all notebooks import."""
    names: set[str] = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        lines = [re.sub(r"(?m)^\s*[%!].*$", "", cell) for cell in code if not cell.startswith("%%")]
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def test_every_dependency_of_the_package_is_there_with_its_limits_because_pip_may_not_bring_it(
    environment: dict[str, Any],
) -> None:
    there = {name_of(each): each for each in environment["dependencies"]}
    assert "pytorch" in there
    for each in pyproject()["dependencies"]:
        if name_of(each) != "torch":
            assert there[name_of(each)] == each


def test_everything_that_notebooks_import_is_there(environment: dict[str, Any]) -> None:
    there = {name_of(each) for each in environment["dependencies"]} | {"devwidget"}
    outside = {name for name in notebook_imports() if name not in sys.stdlib_module_names}
    assert {CONDA_NAMES.get(name, name) for name in outside} <= there


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_are_executable_and_parse(name: str) -> None:
    script = BINDER / name
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
