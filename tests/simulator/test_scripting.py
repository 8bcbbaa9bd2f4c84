"""TorchScript on virtual GPUs."""

import io

import pytest
import torch
from torch import nn

from devwidget import SimulationError

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]


def beside(x):
    return torch.zeros(3, device=x.device) + torch.arange(3).to(x.device) + torch.empty_like(x).zero_()[0]


def on_the_second(x):
    return torch.ones(3, device="cuda:1") + x


def test_a_scripted_function_makes_tensors():
    assert torch.jit.script(beside)(torch.ones(3, 3, device=SECOND)).device == SECOND
    assert torch.jit.script(on_the_second)(torch.ones(3, device=SECOND)).device == SECOND


def moved(x, y):
    return x.to(y.device), x.to(y), x.type_as(y), torch.tensor([1], device=y.device), x.cuda(), y.cpu()


def made(x):
    return torch.arange(3, device=x.device), torch.zeros(2), torch.ones_like(x)


def test_a_scripted_function_moves_tensors():
    places = [result.device for result in torch.jit.script(moved)(torch.ones(3), torch.ones(3, device=SECOND))]
    assert places == [SECOND] * 4 + [FIRST, torch.device("cpu")]


def test_what_a_scripted_function_makes_is_where_it_says():
    places = [result.device for result in torch.jit.script(made)(torch.ones(3, device=SECOND))]
    assert places == [SECOND, torch.device("cpu"), SECOND]


class OnCpu(nn.Module):
    def forward(self, x):
        return x.cpu() if x.is_cuda else x


def test_a_compiled_module_that_needs_the_true_device_is_refused():
    module = torch.jit.script(OnCpu())
    assert module(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(SimulationError, match="in a compiled module cannot know virtual GPUs"):
        module(torch.ones(2, device=SECOND))


def test_a_traced_function_shows_its_graph_and_moves_nothing():
    traced = torch.jit.trace(lambda x: x * 2 + 1, torch.ones(3, device=SECOND))
    assert "aten::add" in str(traced.graph)
    assert traced(torch.ones(3, device=SECOND)).device == SECOND
    with pytest.raises(torch.jit.TracingCheckError, match="in a compiled module cannot know virtual GPUs"):
        torch.jit.trace(lambda x: x.to("cuda:0"), torch.ones(3, device=SECOND))


def test_a_scripted_function_refuses_a_mixture():
    # The interpreter leaves the text of a Python error out.
    with pytest.raises(RuntimeError, match=r"device=\"cuda:1\"\) \+ x\n +~+ <--- HERE"):
        torch.jit.script(on_the_second)(torch.ones(3, device=FIRST))


@pytest.mark.parametrize("compiled", [torch.jit.script, lambda module: torch.jit.trace(module, torch.ones(3, device=SECOND))])
def test_a_compiled_module_comes_back_from_a_file_where_it_was(compiled):
    file = io.BytesIO()
    torch.jit.save(compiled(nn.Linear(3, 3).cuda(1)), file)
    assert torch.jit.load(io.BytesIO(file.getvalue())).weight.device == SECOND
    assert torch.jit.load(io.BytesIO(file.getvalue()), map_location="cuda:0").weight.device == FIRST
    assert torch.jit.load(io.BytesIO(file.getvalue()), map_location="cpu").weight.device.type == "cpu"


def test_files_of_the_users_own_are_kept_beside():
    file, files = io.BytesIO(), {"note": ""}
    torch.jit.save(torch.jit.script(nn.Linear(3, 3).cuda(1)), file, _extra_files={"note": "mine"})
    torch.jit.load(io.BytesIO(file.getvalue()), _extra_files=files)
    assert files == {"note": b"mine"}
