"""Assertions of kernels: in the words of the CPU where they are made, or late and for good, as on CUDA."""

import pytest
import torch

import devwidget
from devwidget.simulator import simulate
from tests.gpu import surface_calls

ASSERTED = "CUDA error: device-side assert triggered"


@pytest.fixture
def asserting():
    """Two virtual GPUs whose kernels stop as CUDA's do."""
    with simulate(2, asserts="device"):
        yield


def stop_kernel():
    """A result that is none."""
    return torch.ones(3, device="cuda")[torch.tensor([9], device="cuda")]


TOLD = {"raises": getattr(torch, "AcceleratorError", RuntimeError).__name__, "text": ASSERTED}
ENDS_ITSELF = ("multinomial", "binary_cross_entropy")


@pytest.mark.parametrize("call", surface_calls.read_calls("asserts"))
def test_an_assertion_is_told_where_an_h100_tells_it(call, asserting):
    itself, waiting, after = surface_calls.answer_assertion(call)
    assert ("raises" in itself) == any(name in call for name in ENDS_ITSELF)
    assert waiting == after == TOLD


WAITS = [
    lambda x: x.cpu(),
    lambda x: x.sum().item(),
    lambda x: x.tolist(),
    lambda x: bool(x[0] > 0),
    lambda x: x.nonzero(),
    lambda x: torch.zeros(1).copy_(x),
    lambda x: torch.ones(2).to("cuda"),
    lambda x: repr(x),
    lambda x: torch.cuda.synchronize(),
    lambda x: torch.cuda.current_stream().synchronize(),
    lambda x: torch.cuda.empty_cache(),
    lambda x: torch.cuda.Event().query(),
]


@pytest.mark.parametrize("wait", WAITS)
def test_whoever_waits_is_told(wait, asserting):
    x = stop_kernel()
    y = (x * 2).relu_()
    assert y.device == torch.device("cuda:0")
    with pytest.raises(torch.AcceleratorError, match=ASSERTED):
        wait(y)


def test_nothing_is_answered_afterwards_but_what_asks_no_gpu(asserting):
    x = torch.ones(3, device="cuda")
    stop_kernel()
    with pytest.raises(torch.AcceleratorError):
        torch.cuda.synchronize()
    for call in (lambda: x + 1, lambda: x.zero_(), lambda: torch.ones(1, device="cuda:1"), lambda: torch.cuda.mem_get_info(),
                 lambda: torch.tensor([1.0], device="cuda"), lambda: torch.nn.Linear(2, 2).cuda(),
                 lambda: torch.cuda.set_device(1), lambda: torch.cuda.Event().record()):  # fmt: skip
        with pytest.raises(torch.AcceleratorError, match=ASSERTED):
            call()
    assert x.view(3, 1).shape == (3, 1)
    assert torch.ones(2).sum().item() == 2
    assert torch.cuda.memory_allocated() == 512
    assert "cuda:1" in str(devwidget.snapshot(torch.nn.Linear(2, 2)))


def test_a_new_simulation_is_as_new(asserting):
    stop_kernel()
    with pytest.raises(torch.AcceleratorError):
        torch.cuda.synchronize()
    devwidget.simulator.active().stop()
    with simulate(2, asserts="device"):
        assert torch.ones(2, device="cuda").sum().item() == 2


def test_a_kernel_that_is_waited_for_says_where_it_stopped(asserting, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(torch.AcceleratorError) as caught:
        stop_kernel()
    assert "LAUNCH_BLOCKING" not in str(caught.value)


def test_a_late_one_says_how_to_find_it(asserting):
    stop_kernel()
    with pytest.raises(torch.AcceleratorError, match="consider passing CUDA_LAUNCH_BLOCKING=1") as caught:
        torch.cuda.synchronize()
    assert "cudaErrorAssert" in str(caught.value)
    assert "CUDA_LAUNCH_BLOCKING=1 in the environment shows which call" in str(devwidget.explain(caught.value))


def test_errors_of_the_host_stay_where_they_are(asserting):
    x = torch.ones(3, device="cuda")
    for call, kind in (
        (lambda: x[9], IndexError),
        (lambda: x.gather(3, x.long()), IndexError),
        (lambda: x @ x[:2], RuntimeError),
    ):
        with pytest.raises(kind):
            call()
    with pytest.raises(IndexError, match="out of bounds"):
        torch.ones(3)[torch.tensor([9])]
    torch.cuda.synchronize()


def test_a_stopped_kernel_of_a_training_step_is_told_by_the_loss(asserting):
    model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Flatten(), torch.nn.Linear(6, 2)).cuda()
    loss = model(torch.tensor([[1, 7]], device="cuda")).sum()
    loss.backward()
    with pytest.raises(torch.AcceleratorError, match=ASSERTED):
        loss.item()


def test_by_default_the_text_is_clear_and_says_what_cuda_would_do(gpus):
    for call, kind, text in (
        (stop_kernel, IndexError, "index 9 is out of bounds for dimension 0 with size 3"),
        (lambda: torch.ones(3, device="cuda").gather(0, torch.tensor([9], device="cuda")), RuntimeError, "index 9 is out of"),
        (lambda: torch.nn.functional.one_hot(torch.tensor([9], device="cuda"), 3), RuntimeError, "must be smaller than num"),
    ):
        with pytest.raises(kind, match=text) as caught:
            call()
        assert "`device-side assert triggered`" in caught.value.__notes__[0]
    with pytest.raises(IndexError) as caught:
        torch.ones(3)[torch.tensor([9])]
    assert not hasattr(caught.value, "__notes__")
    assert torch.ones(2, device="cuda").sum().item() == 2
