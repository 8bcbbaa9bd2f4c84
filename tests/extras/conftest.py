"""In tests of extras a claim about ranks that they do not bear out fails."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from devwidget.extras import extras


@pytest.fixture(autouse=True)
def _claims_about_ranks_are_strict() -> Iterator[None]:
    if "ranks" not in extras():
        yield
        return
    from devwidget.extras.ranks.rules import over_ranks
    from tests.extras.ranks.strict_roles import run_strictly

    with mock.patch.object(over_ranks, "run_rule", run_strictly):
        yield
