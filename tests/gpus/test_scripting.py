"""TorchScript on virtual GPUs."""

import io

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
def test_scripts_move_tensors_come_back_from_files_and_are_refused_where_they_need_the_true_device(gpus):
    places = [result.device for result in torch.jit.script(moved)(torch.ones(3), torch.ones(3, device=SECOND))]
    assert places == [SECOND] * 3 + [FIRST, torch.device("cpu")]
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(3, 3).cuda(1)), file)
    assert torch.jit.load(io.BytesIO(file.getvalue())).weight.device == SECOND
    assert torch.jit.load(io.BytesIO(file.getvalue()), map_location="cuda:0").weight.device == FIRST
    with pytest.raises(SimulationError, match="in a compiled module cannot know virtual GPUs"):
        torch.jit.script(OnCpu())(torch.ones(2, device=SECOND))
