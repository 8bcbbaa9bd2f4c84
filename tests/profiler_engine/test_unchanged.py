"""What torch's profiler records runs as without it: outputs, gradients, random states and parameters, bit for bit."""

import copy
import itertools

import torch

import devwidget
from tests import gradients, zoo

RECORDED = "profiled"
SOME_OPERATORS = ["add", "nn.functional.batch_norm", "nn.functional.dropout", "reshape"]


def test_operators_give_what_they_give_without():
    steps = gradients.of_operators(SOME_OPERATORS, torch.float32, 1, ("ones moved", "reversed"))
    found = gradients.compare(list(itertools.chain(*steps)), [RECORDED])
    assert found.differences == {}
    assert found.counts[f"{RECORDED}: same"] > 20


def train(model, args, kwargs):
    """The losses, parameters and buffers of a short training, and the random state."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(0)
    losses = []
    for _ in range(3):
        losses.append(model(*args, **kwargs).logits.square().mean())
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return [*(loss.detach() for loss in losses), *model.state_dict().values(), torch.default_generator.get_state()]


def test_a_model_is_trained_as_without():
    [(_, model, args, kwargs)] = zoo.iter_core(names=["gpt2"], training=True)
    plain = train(copy.deepcopy(model), args, kwargs)
    with devwidget.record(engine="profiler"):
        recorded = train(model, args, kwargs)
    assert gradients.difference(recorded, plain) == ""
