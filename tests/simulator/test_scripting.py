"""TorchScript on virtual GPUs."""

import io

import pytest
import torch
from torch import nn

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]


def beside(x):
    return torch.zeros(3, device=x.device) + torch.arange(3).to(x.device) + torch.empty_like(x).zero_()[0]


def on_the_second(x):
    return torch.ones(3, device="cuda:1") + x


def test_a_scripted_function_makes_tensors():
    assert torch.jit.script(beside)(torch.ones(3, 3, device=SECOND)).device == SECOND
    assert torch.jit.script(on_the_second)(torch.ones(3, device=SECOND)).device == SECOND


def test_a_scripted_function_refuses_a_mixture():
    # The interpreter leaves the text of a Python error out.
    with pytest.raises(RuntimeError, match=r"device=\"cuda:1\"\) \+ x\n +~+ <--- HERE"):
        torch.jit.script(on_the_second)(torch.ones(3, device=FIRST))


def test_a_scripted_module_comes_back_from_a_file_where_it_was():
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(3, 3).cuda(1)), file)
    assert torch.jit.load(io.BytesIO(file.getvalue())).weight.device == SECOND
    assert torch.jit.load(io.BytesIO(file.getvalue()), map_location="cuda:0").weight.device == FIRST
    assert torch.jit.load(io.BytesIO(file.getvalue()), map_location="cpu").weight.device.type == "cpu"


def test_files_of_the_users_own_are_kept_beside():
    file, files = io.BytesIO(), {"note": ""}
    torch.jit.save(torch.jit.script(nn.Linear(3, 3).cuda(1)), file, _extra_files={"note": "mine"})
    torch.jit.load(io.BytesIO(file.getvalue()), _extra_files=files)
    assert files == {"note": b"mine"}
