"""What the table of replacements says of torch, asked of torch."""

import operator

import pytest
import torch

from devwidget.extras.portable.replacements import REPLACEMENTS
from tests.older_torch import before

pytestmark = pytest.mark.skipif(torch.accelerator.is_available(), reason="needs a machine without an accelerator")


def find_name(full):
    return operator.attrgetter(full.removeprefix("torch."))(torch)


@before((2, 9), "torch.accelerator has no memory functions")
@pytest.mark.parametrize("name", [name for name, each in REPLACEMENTS.items() if each.needs_accelerator])
def test_what_needs_an_accelerator_raises_without_one_where_the_old_name_runs(name):
    find_name(name)()
    with pytest.raises(RuntimeError, match="when none is available"):
        find_name(REPLACEMENTS[name].name)()
