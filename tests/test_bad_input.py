"""Wrong types and absurd values at the public functions: each is refused with our own exception, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import devwidget
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
LOSSES = (7, "mse", [], {}, object(), nn.MSELoss)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", NO_TEXTS, ids=lambda value: type(value).__name__)
def test_what_is_no_text_is_refused(call: str, value: Any) -> None:
    with pytest.raises(DevwidgetError):
        CALLS[call](value)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda value: type(value).__name__)
def test_what_is_no_loss_is_refused_before_anything_runs(loss: Any) -> None:
    for call in (devwidget.trace, devwidget.check, devwidget.show):
        with pytest.raises(DevwidgetError, match="the loss is"):
            call(MODEL, BATCH, loss_fn=loss)
    with pytest.raises(DevwidgetError, match="the loss is"):
        devwidget.plan(MODEL, BATCH, gpus=1, memory="1GiB", loss_fn=loss)


def test_an_unknown_argument_or_severity_names_the_nearest_one() -> None:
    with pytest.raises(DevwidgetError, match=r"knows no argument `loss`.*did you mean 'loss_fn'"):
        devwidget.check(MODEL, BATCH, loss=torch.sum)
    with pytest.raises(DevwidgetError, match=r"'errors' is no severity.*did you mean 'error'"):
        devwidget.check(MODEL, BATCH, fail_on=("errors",))  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [7, b"x", object(), ["tensors"]])
def test_a_table_that_is_no_text_is_refused(part: Any) -> None:
    with pytest.raises(ValueError, match="has no table"):
        devwidget.snapshot(MODEL).to_frame(part)
