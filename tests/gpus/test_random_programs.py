"""Random programs of moves, factories, views, in-place operations and backward, against an independent model of the rules."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devwidget.gpus import simulate
from tests.gpus import device_rules_model as rules

OPERATIONS = {
    "like": (torch.ones_like, rules.same),
    "view": (lambda a: a.view_as(a), rules.same),
    "sum": (torch.sum, rules.summed),
    "add": (torch.add, rules.elementwise),
    "add_": (lambda a, b: a.detach().clone().add_(b.detach()), rules.added_in_place),
    "copy_": (lambda a, b: a.detach().clone().copy_(b), lambda own, other: own),
    "addcmul": (torch.addcmul, rules.addcmul),
    "cat": (lambda a, b: torch.cat([a.reshape(-1), b.reshape(-1)])[:2], rules.strict),
    "dot": (lambda a, b: torch.dot(a.expand(2), b.expand(2)).expand(2), rules.strict),
    "index": (lambda a, b: a.reshape(-1)[torch.zeros_like(b.reshape(-1), dtype=torch.long)], rules.indexed),
}
IN_PLACE = ("add_", "copy_")
COUNTS = {"like": 1, "view": 1, "sum": 1, "addcmul": 3}
DEVICES = st.sampled_from(["cpu", "cuda:0", "cuda:1", "cuda:2"])
PLACES = st.lists(st.integers(0, 30), min_size=3, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("born"), DEVICES, st.booleans()),
    st.tuples(st.just("leaf"), DEVICES, st.booleans()),
    st.tuples(st.just("moved"), DEVICES, PLACES),
    *(st.tuples(st.just(name), st.none(), PLACES) for name in OPERATIONS),
)


def run_program(steps):
    """Run each step for real and in the model; all tensors with what the model knows of them, and the leaves."""
    pairs, leaves = [(torch.ones(2), rules.Value("cpu", False))], []
    for name, device, argument in steps:
        if name in ("born", "leaf"):
            tensor = torch.full(() if argument else (2,), 1.0, device=device, requires_grad=name == "leaf")
            pairs.append((tensor, rules.Value(device, argument)))
            leaves += [tensor] * (name == "leaf")
            continue
        chosen = [pairs[place % len(pairs)] for place in argument]
        if name == "moved":
            tensor, value = chosen[0]
            pairs.append((tensor.to(device), rules.moved(value, device)))
            continue
        tensors, values = zip(*chosen[: COUNTS.get(name, 2)], strict=True)
        real, model = OPERATIONS[name]
        if name in IN_PLACE and values[0].is_scalar and not values[1].is_scalar:
            continue  # of another shape
        try:
            expected = model(*values)
        except rules.Refused:
            with pytest.raises(RuntimeError, match=r"device|too many CPU scalars|CPU Scalar support"):
                real(*tensors)
            continue
        pairs.append((real(*tensors), expected))
    return pairs, leaves


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_every_device_every_refusal_and_every_gradient_is_as_the_rules_say(steps):
    with simulate(3):
        pairs, leaves = run_program(steps)
        for tensor, value in pairs:
            assert str(tensor.device) == value.device
            if tensor.requires_grad:
                tensor.sum().backward(retain_graph=True)
        for leaf in leaves:
            assert leaf.grad.device == leaf.device
