"""Wrong calls of everything public: each is told what is wrong, what it was given, and what would have been right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import devwidget

ROWS = [line.split(" | ") for line in (Path(__file__).parent / "wrong_calls.txt").read_text(encoding="utf-8").splitlines()]
"""A wrong call | a part of what is said of it | a part of what would have been right."""


class Uninitialised(nn.Module):
    def __init__(self) -> None:
        pass


class Named(nn.Module):
    def forward(self, *, ids: torch.Tensor) -> torch.Tensor:
        return ids


class Trainer:
    def __init__(self, model: nn.Module) -> None:
        self.model = model


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the calls of the table are about; the files lie in `folder`."""
    folder, model, x = tmp_path_factory.mktemp("wrong"), nn.Linear(2, 2), torch.ones(1, 2)
    trace, snapshot = devwidget.trace(model, x), devwidget.snapshot(model)
    trace.save(folder / "trace.json")
    snapshot.save(folder / "snapshot.json")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (folder / "list.json").write_text("[1]")
    (folder / "cut.json").write_text('{"dev')
    found = {"trace": trace, "snapshot": snapshot, "model": model, "x": x, "folder": folder, "named": Named()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return globals() | found | {"trainer": Trainer(model), "optimizer": optimizer}


@pytest.mark.parametrize(("call", "what", "right"), ROWS, ids=[row[0] for row in ROWS])
def test_a_wrong_call_is_told_what_is_wrong_and_what_would_have_been_right(
    call: str, what: str, right: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(names["folder"])
    with pytest.raises(devwidget.DevwidgetError) as told:
        eval(call, names)
    assert what in told.value.what
    assert right in told.value.instead


def test_the_table_has_a_hundred_calls_and_each_public_function() -> None:
    called = {call.partition("(")[0].removeprefix("devwidget.") for call, _, _ in ROWS}
    functions = {name for name in devwidget.__all__ if name.islower() and not name.startswith("_")}
    assert functions <= called
    assert len(ROWS) >= 100


def test_a_name_that_there_is_not_has_the_nearest_beside_it() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'tracer'; did you mean 'trace'\?"):
        devwidget.tracer


def test_a_type_error_of_the_model_is_none_of_the_call() -> None:
    class Adder(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + None

    found = devwidget.trace(Adder(), torch.ones(1))
    assert "TypeError: unsupported operand" in found.error


def test_a_type_error_inside_a_call_that_fits_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("inside")

    monkeypatch.setattr("devwidget.api.read_snapshot", fail)
    with pytest.raises(TypeError, match=r"^inside$"):
        devwidget.snapshot(nn.Linear(1, 1))
