"""Twenty bugs, for each an edit that is right and one that looks right: the runs tell them apart."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import devwidget
from tests.extras.agents import pairs

NAMES = [each.name for each in pkgutil.iter_modules(pairs.__path__)]


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"{pairs.__name__}.{request.param}")


def test_there_are_twenty() -> None:
    assert len(NAMES) == 20


def test_the_right_edit_works(pair: ModuleType) -> None:
    with devwidget.simulate(gpus=2):
        evidence = devwidget.try_edit(pair.RIGHT, pair.make)
    assert (evidence.verdict, evidence.reasons) == ("works", ()), str(evidence)
    assert evidence.fixed


def test_the_edit_that_looks_right_does_not_pass(pair: ModuleType) -> None:
    with devwidget.simulate(gpus=2):
        evidence = devwidget.try_edit(pair.WRONG, pair.make)
    assert evidence.verdict in ("doubtful", "fails"), str(evidence)
    assert any(pair.SAID in reason for reason in evidence.reasons), str(evidence)
