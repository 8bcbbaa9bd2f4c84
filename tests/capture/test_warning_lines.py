"""A warning of torch names the line that it names without devwidget, and is shown as often."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import devwidget
from devwidget.capture import background_births


@contextlib.contextmanager
def births() -> Iterator[None]:
    background_births.begin_cell()
    try:
        yield
    finally:
        background_births.end_watching()


@contextlib.contextmanager
def recorded_on_virtual_gpus() -> Iterator[None]:
    with devwidget.simulate(gpus=1), devwidget.record():
        yield


WATCHED = {
    "births": births,
    "record": devwidget.record,
    "simulate": lambda: devwidget.simulate(gpus=1),
    "both": recorded_on_virtual_gpus,
}


def step() -> None:
    target = torch.rand(4)
    for _ in range(3):
        F.mse_loss(torch.rand(4, 1), target)
    F.mse_loss(torch.rand(4, 1), target)
    (torch.rand(2, requires_grad=True) * 2).grad
    torch.tensor(target)
    torch.nn.Linear(0, 3)


def watched_step() -> None:
    with recorded_on_virtual_gpus():
        step()


def places(act: Callable[[], None], action: str) -> list[tuple[str, int, str]]:
    """Where the warnings are shown, as in a new process: what has been shown before is forgotten."""
    for module in list(sys.modules.values()):
        shown = vars(module).get("__warningregistry__")
        if shown:
            shown.clear()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        act()
    return [(warning.filename, warning.lineno, str(warning.message)[:40]) for warning in found]


@pytest.mark.parametrize("action", ["always", "default", "once", "module"])
@pytest.mark.parametrize("name", WATCHED)
def test_warnings_stand_where_they_do_without_us(name: str, action: str) -> None:
    def watched() -> None:
        with WATCHED[name]():
            step()

    plain = places(step, action)
    assert len(plain) >= 4
    assert places(watched, action) == plain


def test_a_filter_for_a_module_of_the_user_holds_in_a_recording() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=re.escape(__name__))
        with devwidget.record():
            F.mse_loss(torch.rand(4, 1), torch.rand(4))
    assert found == []


def test_a_warning_that_is_an_error_is_raised_at_the_call() -> None:
    with warnings.catch_warnings(), devwidget.record():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="target size"):
            F.mse_loss(torch.rand(4, 1), torch.rand(4))


def test_nothing_is_left_in_the_module_of_warnings() -> None:
    before = dict(vars(warnings))
    found = places(watched_step, "always")
    assert len(found) >= 4
    assert vars(warnings)["_showwarnmsg"] is before["_showwarnmsg"]
