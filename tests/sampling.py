"""Long lists of cases: a sample in `make test`, all of them in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sample(cases: Iterable[Any], *, every: int, first: int = 0) -> list[Any]:
    """Mark all cases `slow` but each `every`th, beginning with number `first`.

    A case that is a tuple holds the values of several arguments, as in `pytest.mark.parametrize`.
    """
    found = []
    for number, case in enumerate(cases):
        is_sampled = number % every == first % every
        found.append(case if is_sampled else as_slow(case))
    return found


def as_slow(case: Any) -> Any:
    """The same case, for `make test-all` alone."""
    if hasattr(case, "marks"):  # made by `pytest.param`
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
