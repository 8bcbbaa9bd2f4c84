"""pyproject.toml, noxfile.py, the workflow and the set-up script say the same about Pythons and torch."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any, get_overloads

import pytest
import yaml

from devwidget import api
from devwidget.extras.plan.api import plan

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOXFILE = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def matrix() -> dict[str, list[str]]:
    """What the workflow tests the wheel with."""
    found: dict[str, list[str]] = workflow()["jobs"]["wheel"]["strategy"]["matrix"]
    return found


def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    return found


def nox_pythons() -> list[str]:
    (wheel,) = [node for node in NOXFILE.body if isinstance(node, ast.FunctionDef) and node.name == "wheel"]
    keywords = [each for node in wheel.decorator_list if isinstance(node, ast.Call) for each in node.keywords]
    (pythons,) = [ast.literal_eval(each.value) for each in keywords if each.arg == "python"]
    assert isinstance(pythons, list)
    return pythons


def nox_torch() -> dict[str, str]:
    return assigned("TORCH")


def assigned(name: str) -> dict[str, str]:
    """A table of noxfile.py."""
    (value,) = [n.value for n in NOXFILE.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
    found: dict[str, str] = ast.literal_eval(value)
    return found


def test_each_python_that_the_project_names_is_tested(matrix: dict[str, list[str]]) -> None:
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert named == nox_pythons() == matrix["python"]
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_the_oldest_torch_that_may_be_installed_and_the_pinned_one_are_tested(matrix: dict[str, list[str]]) -> None:
    (oldest,) = [each.removeprefix("torch>=") for each in PROJECT["project"]["dependencies"] if each.startswith("torch")]
    assert list(nox_torch()) == matrix["torch"] == ["pinned", "newest"]
    assert next(iter(assigned("OLDER"))) == oldest
    assert list(assigned("OLDER")) == workflow()["jobs"]["older"]["strategy"]["matrix"]["torch"]
    assert f'"{nox_torch()["pinned"]}"' in (ROOT / ".ci" / "set_up.py").read_text(encoding="utf-8")


def test_each_dependency_has_a_lower_bound_that_is_tested() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    named = [*PROJECT["project"]["dependencies"], *extras["lab"], *extras["tutorial"]]
    assert [each for each in named if not re.fullmatch(r"[\w-]+>=[\d.]+(,<\d+)?", each)] == []
    assert next(iter(assigned("OLDER").values())) == nox_pythons()[0]


def test_a_wheel_brings_nothing_that_only_tests_need() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {"agents", "lab", "tutorial"}
    assert not any("pytest" in each for each in PROJECT["project"]["dependencies"])


def test_a_type_checker_is_told_which_record_and_which_panel_come_back() -> None:
    told = {call: [each.__annotations__["return"] for each in get_overloads(call)] for call in (plan, api.show)}
    assert told == {plan: ["Plan", "ParallelPlan"], api.show: ["DeviceWidget", "Any"]}


def shown_by_an_index() -> str:
    """The page of the wheel, put together as its build does."""
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = "".join(map(fragment, hook["fragments"]))
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    return text


def fragment(part: dict[str, str]) -> str:
    if "text" in part:
        return part["text"]
    text = (ROOT / part["path"]).read_text(encoding="utf-8")
    text = text[text.index(part["start-at"]) :]
    return text[: text.index(part["end-before"])] if "end-before" in part else text


def test_an_index_shows_no_link_or_picture_that_only_the_repository_has_and_names_its_files_instead() -> None:
    text = shown_by_an_index()
    assert re.findall(r"\]\((?!https:)|<img|<picture|OWNER", text) == []
    named = re.findall(r"`((?:docs|notebooks)/[\w./-]+|LICENSE)`", text)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert fragment({"path": "README.md", "start-at": "See where", "end-before": "\n\n"}) in text
