"""What plans for ranks need of the process that the tests run in."""

import pytest
import torch

from devwidget.extras.plan.parallel import run_in_fork
from devwidget.records.errors import DevwidgetError


@pytest.fixture
def copies_run_backward():
    """`torch.compile` of torch 2.15 starts threads for devices, and a copy of such a process runs no backward."""
    try:
        run_in_fork(lambda: torch.ones(1, requires_grad=True).sum().backward())
    except DevwidgetError as error:
        pytest.skip(str(error.why))
