"""Softmax of halves in single precision, which a GPU computes in one kernel, without a copy of what goes in."""

import pytest
import torch
import torch.nn.functional as F

import devwidget

WAYS = {
    "method": lambda x: x.softmax(dim=-1, dtype=torch.float32),
    "functional": lambda x: F.softmax(x, dim=-1, dtype=torch.float32),
    "special": lambda x: torch.special.log_softmax(x, -1, dtype=torch.float32),
    "logarithm": lambda x: F.log_softmax(x, -1, dtype=torch.float32),
}
SIZE = 1 << 20


@pytest.fixture(params=[True, False], ids=["values", "without values"])
def computes(request):
    with devwidget.simulate(gpus=1, compute=request.param):
        yield request.param


def most(run):
    """Bytes beyond what there was, at most."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    return result, torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("way", WAYS)
def test_it_takes_its_result_and_no_more(computes, way):
    x = torch.zeros(SIZE // 64, 64, dtype=torch.float16, device="cuda")
    result, taken = most(lambda: WAYS[way](x))
    assert (result.dtype, result.device.type, taken) == (torch.float32, "cuda", 4 * SIZE)


def test_in_another_dtype_what_goes_in_is_copied_as_on_a_gpu(computes):
    x = torch.zeros(SIZE // 64, 64, dtype=torch.bfloat16, device="cuda")
    assert most(lambda: x.softmax(-1, dtype=torch.float32))[1] == 8 * SIZE


def test_autocast_has_it_computed_in_one_kernel_too(computes):
    x = torch.zeros(SIZE // 64, 64, dtype=torch.float16, device="cuda")
    with torch.autocast("cuda", torch.float16):
        result, taken = most(lambda: x.softmax(-1))
    assert (result.dtype, taken) == (torch.float32, 4 * SIZE)


@pytest.mark.parametrize("way", WAYS)
def test_numbers_and_gradients_are_those_of_the_copy(way):
    given = torch.randn(8, 16).half()
    here = given.clone().requires_grad_()
    expected = WAYS[way](here)
    expected.square().sum().backward()
    with devwidget.simulate(gpus=1):
        there = given.cuda().requires_grad_()
        with devwidget.record() as recording:
            WAYS[way](there).square().sum().backward()
        assert {op.name for op in recording.trace.ops} & {"_softmax", "_log_softmax"}
        assert there.grad.dtype == torch.float16
        assert torch.equal(there.grad.cpu(), here.grad)
        assert torch.equal(WAYS[way](there).detach().cpu(), expected.detach())
