"""Wrong types and absurd values at the public functions: each is refused with our own exception, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import devwidget
from devwidget.cli.main import main
from devwidget.language.speaking import language
from devwidget.records.errors import DevwidgetError

NO_TEXTS = (None, 7, float("nan"), -1, 10**40, True, object(), nn.Linear, b"x", [1], [None])
MODEL, BATCH = nn.Linear(2, 2), torch.ones(1, 2)
CALLS: dict[str, Callable[[Any], Any]] = {
    "record(allow=)": lambda value: devwidget.record(allow=value),
    "trace(allow=)": lambda value: devwidget.trace(MODEL, BATCH, allow=value),
    "check(allow=)": lambda value: devwidget.check(MODEL, BATCH, allow=value),
    "check(fail_on=)": lambda value: devwidget.check(MODEL, BATCH, fail_on=value),
    "allow()": lambda value: devwidget.allow(value, why="meant").__enter__(),
    "allow(why=)": lambda value: devwidget.allow("cuda:0 -> cpu", why=value).__enter__(),
    "explain()": lambda value: devwidget.explain(value if value is not None else 0),  # type: ignore[arg-type]
    "attach()": lambda value: devwidget.record().attach(value),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_text_is_refused(call: str) -> None:
    for value in NO_TEXTS:
        with pytest.raises(DevwidgetError):
            CALLS[call](value)


@pytest.mark.parametrize("name", ["zh-CN", "zh_CN.UTF-8", "ZH", "en-GB"])
def test_a_language_may_be_named_with_its_country(name: str) -> None:
    devwidget.set_language(name)
    try:
        assert language() == name[:2].lower()
    finally:
        devwidget.set_language(None)


COMMANDS = {
    "html trace.json nowhere/page.html": "argument OUT: there is no folder",
    "run --sarif nowhere/x program.py": "argument --sarif: there is no folder",
    "run --html . program.py": "argument --html: ",
    "run --gpus 0 program.py": "argument --gpus: '0' is not a number of GPUs",
    "check --baseline nothing program:step": "argument --baseline: there is no file",
    "plan program:step --gpus 1 --memory 1GiB --save nowhere/x": "argument --save: there is no folder",
}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_wrong_command_is_refused_before_anything_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert COMMANDS[line] in capsys.readouterr().err


def test_a_module_that_there_is_not_is_no_traceback_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.train:step"]) == 2
    assert "there is no module nowhere.train" in capsys.readouterr().err
