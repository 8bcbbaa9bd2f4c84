"""GPUs in a child that was forked after its parent had used one: CUDA has no use for them there."""

import multiprocessing

import pytest
import torch

pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.process]
FORK = multiprocessing.get_context("fork")


def tell(call, answers):
    try:
        answers.send(str(call()))
    except RuntimeError as error:
        answers.send(str(error))


def in_child(call):
    """What a call returns, or says, in a forked child."""
    reader, writer = FORK.Pipe(duplex=False)
    child = FORK.Process(target=tell, args=(call, writer))
    child.start()
    child.join(60)
    return reader.recv()


def test_a_child_works_on_the_cpu_and_on_a_gpu_that_its_parent_has_not_used():
    assert in_child(lambda: torch.ones(1, device="cuda").device) == "cuda:0"
    torch.ones(1, device="cuda")
    assert in_child(lambda: (torch.manual_seed(0), torch.ones(2) * 2)[1].tolist()) == "[2.0, 2.0]"


def test_a_child_cannot_start_cuda_again():
    torch.ones(1, device="cuda")
    said = in_child(lambda: torch.ones(1, device="cuda"))
    assert said.startswith("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use")
