"""Which mixtures of devices CUDA accepts, and how it refuses the others, where `test_card_answers` does not ask it."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

SAME = "Expected all tensors to be on the same device"
TWO = f"{SAME}, but found at least two devices, cuda:0 and cpu!"
CHECKED = SAME + ", but got {} is on {}, different from other tensors on {} (when checking argument in method wrapper_CUDA_{})"
pytestmark = pytest.mark.usefixtures("gpus")
HOST = torch.ones(2, 3)


@pytest.fixture
def x():
    return torch.randn(2, 3, device="cuda")


REFUSED = [
    # Each way to check: an iterator, generated code around a kernel, and kernels in their own words.
    (lambda x: x + HOST, TWO),
    (lambda x: HOST.clone().add_(x), TWO),
    (lambda x: torch.add(x, x, out=torch.ones(2, 3)), TWO),
    (lambda x: x @ torch.ones(3, 2), CHECKED.format("mat2", "cpu", "cuda:0", "mm")),
    (lambda x: nn.Linear(3, 3)(x), CHECKED.format("mat1", "cuda:0", "cpu", "addmm")),
    (lambda x: torch.cat([x, HOST]), CHECKED.format("tensors", "cpu", "cuda:0", "cat")),
    (lambda x: torch.searchsorted(x[0], HOST[0]), CHECKED.format("self", "cpu", "cuda:0", "Tensor_searchsorted")),
    (lambda x: x + x.to("cuda:1"), "found at least two devices, cuda:0 and cuda:1!"),
    (lambda x: x + torch.tensor(1.0, device="cuda:1"), "cuda:0 and cuda:1!"),
    (lambda x: x[torch.tensor([0], device="cuda:1")], "on cpu or on the same device as the indexed tensor (cuda:0)"),
    (lambda x: F.conv2d(torch.ones(32, 3, 32, 32), torch.ones(2, 3, 3, 3).cuda()),
     "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or input should be"),
    (lambda x: F.conv1d(torch.ones(1, 3, 4).cuda(), torch.ones(2, 3, 2).cuda().double()),
     "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.DoubleTensor) should be the same"),
    (lambda x: nn.GRU(3, 4)(x[None], torch.zeros(1, 2, 4)),  # the hidden state is asked before the weights
     "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu"),
    (lambda x: F.scaled_dot_product_attention(x[None], HOST[None], HOST[None]),
     "Expected query, key, and value to have the same device type, but got query.device: cuda:0 key.device: cpu"),
    (lambda x: torch.addcdiv(x, torch.tensor(1.0), torch.tensor(2.0)), "pass too many CPU scalars to non-CPU kernel!"),
    (lambda x: x + torch.ones(2, 3, device="meta"), "Tensor on device meta is not on the expected device cuda:0!"),
    (lambda x: nn.Linear(3, 2).cuda()(x.double()), "mat1 and mat2 must have the same dtype, but got Double and Float"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_a_mixture_is_refused_in_the_words_of_who_checks(x, call, text):
    with pytest.raises(RuntimeError, match=re.escape(text)):
        call(x)


LAWFUL = [
    lambda x: x + torch.tensor(1.0),
    lambda x: x.clone().index_put_((torch.tensor([0]),), torch.tensor(1.0)),
    lambda x: x.clone().index_put_((torch.tensor([0], device="cuda:1"),), x[:1]),
    lambda x: torch.ones(2).index_put((torch.tensor([True, False], device="cuda"),), torch.tensor(1.0)).cuda(),
    lambda x: torch._foreach_mul([x, HOST], 2.0)[0],
    lambda x: torch.nn.utils.rnn.pad_sequence([x, HOST]),
]


@pytest.mark.parametrize("call", LAWFUL)
def test_lawful_mixtures_run_on_the_gpu(x, call):
    assert call(x).device == torch.device("cuda:0")


@pytest.mark.parametrize("index", [[1, 2], torch.tensor([1, 2]), torch.tensor([False, True, True])])
def test_a_number_is_written_at_indices_of_the_cpu(x, index):
    x[:, index] = 7
    x[0, 0] = x[1, 0] = 0
    assert x.tolist() == [[0, 7, 7], [0, 7, 7]]


def test_a_refused_call_changes_nothing(x):
    target, before = torch.zeros(2, 3), torch.cuda.memory_allocated()
    with pytest.raises(RuntimeError, match=SAME):
        target.add_(x)
    assert not target.any()
    assert torch.cuda.memory_allocated() == before


def test_inference_mode_checks_as_well(x):
    with torch.inference_mode():
        assert nn.Linear(3, 3).cuda()(x).device == x.device
        with pytest.raises(RuntimeError, match=SAME):
            torch.matmul(x, torch.ones(3, 2))


def test_a_kernel_that_cuda_lacks_is_refused_and_one_that_only_cuda_has_runs(x):
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::histogram\.bin_ct' with arguments from the 'CUDA'"):
        torch.histogram(x, 3)
    with pytest.raises(NotImplementedError, match="\"cholesky_cusolver\" not implemented for 'Half'"):
        torch.linalg.cholesky(torch.eye(2, device="cuda").half())
    with pytest.raises(RuntimeError, match="\"addmm_cuda\" not implemented for 'Long'"):
        x.long() @ x.long().T
    assert torch.histc(torch.arange(6, device="cuda"), 3).tolist() == [2, 2, 2]
    assert (torch.tensor([[2]]) @ torch.tensor([[3]])).item() == 6
