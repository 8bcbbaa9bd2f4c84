"""TorchScript on virtual GPUs."""

import pytest
import torch
from torch import nn

from devwidget import SimulationError

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


def moved(x, y):
    return x.to(y.device), x.to(y), torch.zeros(2, device="cuda:1"), x.cuda(), y.cpu()


class OnCpu(nn.Module):
    def forward(self, x):
        return x.cpu() if x.is_cuda else x


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_function_runs_as_it_was_written_and_a_scripted_module_is_refused(gpus):
    places = [result.device for result in torch.jit.script(moved)(torch.ones(3), torch.ones(3, device=SECOND))]
    assert places == [SECOND] * 3 + [FIRST, torch.device("cpu")]
    with pytest.raises(SimulationError, match="a compiled TorchScript module cannot run on virtual GPUs"):
        torch.jit.script(OnCpu())(torch.ones(2, device=SECOND))
