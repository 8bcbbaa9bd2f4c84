"""The two commands: what they would run, who is refused, and that a second run does nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`.ci/set_up.py` on an empty folder, with a pip that only takes notes."""
    spec = importlib.util.spec_from_file_location("set_up", ROOT / ".ci" / "set_up.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(module, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(module, "PYTHON", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setattr(module, "CONSTRAINTS", str(tmp_path / "constraints.txt"))
    module.calls = []
    monkeypatch.setattr(module, "pip", lambda *arguments: module.calls.append(arguments))
    monkeypatch.setattr(module.venv, "create", lambda folder, **_: pretend_venv(Path(folder)))
    return module


def pretend_venv(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()


OF_MAKE = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTEST_ARGS", "WORKERS"}


def dry_run(*arguments: str) -> str:
    """What make would run; the flags of a make that runs these tests are none of its business."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    command = ["make", "--dry-run", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_an_old_python_is_told_so(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer, this is 3\.10"):
        set_up.main("lab")


def test_torch_comes_first_where_there_is_none(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter([None, None, "2.13.0+cpu"])
    monkeypatch.setattr(set_up, "version_of_torch", lambda python: next(versions))
    set_up.main("lab")
    assert [call[1] for call in set_up.calls] == ["torch==2.13.0", "--constraint"]
    assert Path(set_up.CONSTRAINTS).read_text() == "torch==2.13.0+cpu\n"


def test_jupyterlab_asks_nobody_for_news_here_and_on_binder(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "version_of_torch", lambda python: None if python == sys.executable else "2.13.0")
    monkeypatch.setattr(set_up, "is_borrowing", lambda: False)
    set_up.main("lab")
    place = "share/jupyter/lab/settings/overrides.json"
    settings = json.loads((Path(set_up.VENV) / place).read_text())
    assert settings == {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    assert place in (ROOT / "binder" / "postBuild").read_text()


def test_a_torch_that_is_there_is_kept_and_no_torch_is_installed(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "version_of_torch", lambda python: "2.12.1+cu126")
    monkeypatch.setattr(set_up, "see_outer_environment", lambda: None)
    monkeypatch.setattr(set_up, "is_borrowing", lambda: True)
    set_up.main("test")
    assert all("--constraint" in call for call in set_up.calls)
    assert not any(part.startswith("torch") for call in set_up.calls for part in call)
    assert Path(set_up.CONSTRAINTS).read_text() == "torch==2.12.1+cu126\n"


def test_tests_get_what_the_group_and_those_it_includes_name(set_up: ModuleType) -> None:
    text = '[dependency-groups]\ntest = ["pytest>=8"]\ndev = [{ include-group = "test" }, "ruff>=0.11"]\n'
    (Path(set_up.ROOT) / "pyproject.toml").write_text(text)
    assert list(set_up.in_group("dev")) == ["pytest>=8", "ruff>=0.11"]


def test_only_tests_get_what_work_on_devwidget_needs(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "version_of_torch", lambda python: "2.13.0")
    monkeypatch.setattr(set_up, "is_borrowing", lambda: False)
    for what in ("lab", "test"):
        set_up.install(what)
    lab, test = set_up.calls
    assert lab[-1] == ".[lab,tutorial]"
    assert {"pytest>=9", "mypy>=1.15"} <= set(test)


def test_a_second_run_does_nothing_until_the_project_changes(set_up: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "version_of_torch", lambda python: "2.13.0")
    monkeypatch.setattr(set_up, "see_outer_environment", lambda: None)
    set_up.main("lab")
    done = len(set_up.calls)
    set_up.main("lab")
    assert len(set_up.calls) == done
    with open(Path(set_up.ROOT) / "pyproject.toml", "a") as file:
        file.write("\n# changed\n")
    set_up.main("lab")
    assert len(set_up.calls) > done


def test_make_lab_opens_the_first_notebook() -> None:
    line = dry_run("lab").splitlines()[-1]
    assert "-m jupyterlab" in line
    assert "default_url=/lab/tree/notebooks/01-first-look.ipynb" in line
    assert (ROOT / "notebooks" / "01-first-look.ipynb").exists()
    assert "--no-browser" not in line


def test_make_lab_on_a_server_takes_a_port_and_opens_no_browser() -> None:
    line = dry_run("lab", "PORT=8931", "BROWSER=no").splitlines()[-1]
    assert "--port=8931" in line
    assert "--no-browser" in line


def test_make_test_checks_style_and_types_and_runs_the_tests() -> None:
    commands = dry_run("test")
    assert commands.index("ruff check") < commands.index("-m mypy") < commands.index("-m pytest")


def test_make_test_all_runs_make_test_and_then_what_that_leaves_out() -> None:
    selected = [line.partition(" -m pytest ")[2] for line in dry_run("test-all").splitlines() if " -m pytest " in line]
    everyday, rest = (line.partition("-m ")[2] for line in selected)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert everyday == ""  # as pytest does by itself
    assert settings["addopts"][-2:] == ["-m", "not slow and not fuzz"]
    assert rest.strip() == '"slow and not fuzz"'


@pytest.mark.parametrize("script", [".ci/run", "binder/postBuild", "binder/start"])
def test_scripts_parse(script: str) -> None:
    assert subprocess.run(["bash", "-n", ROOT / script], check=False).returncode == 0
