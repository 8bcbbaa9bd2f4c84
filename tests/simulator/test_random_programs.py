"""Random programs of moves, factories, views, in-place operations and backward, against an independent model of the rules."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devwidget import record
from devwidget.simulator import simulate
from tests.simulator import device_rules_model as rules

DEVICES = ["cpu", "cuda:0", "cuda:1", "cuda:2"]
devices = st.sampled_from(DEVICES)
places = st.integers(0, 30)
step = st.one_of(
    st.tuples(st.just("factory"), devices, st.booleans()),
    st.tuples(st.just("data"), devices, st.booleans()),
    st.tuples(st.just("to"), places, devices),
    st.tuples(st.just("like"), places),
    st.tuples(st.just("view"), places),
    st.tuples(st.just("add"), places, places),
    st.tuples(st.just("addcmul"), places, places, places),
    st.tuples(st.just("add_"), places, places),
    st.tuples(st.just("copy_"), places, places),
    st.tuples(st.just("cat"), places, places),
    st.tuples(st.just("mv"), places, places),
    st.tuples(st.just("index"), places, devices),
    st.tuples(st.just("sum"), places),
    st.tuples(st.just("leaf"), devices, st.booleans()),
    st.tuples(st.just("backward"), places),
)


class Program:
    """Runs each step for real and in the model."""

    def __init__(self):
        self.pairs = [(torch.ones(2), rules.born("cpu", False))]
        self.leaves = []

    def pick(self, place):
        return self.pairs[place % len(self.pairs)]

    def run(self, name, *arguments):
        real, model = getattr(self, "do_" + name)(*arguments)
        try:
            expected = model()
        except rules.Refused:
            with pytest.raises(RuntimeError, match=r"device|too many CPU scalars|CPU Scalar support"):
                real()
            return
        result = real()
        if expected is not None:
            assert str(result.device) == expected.device, (name, arguments)
            self.pairs.append((result, expected))

    def do_factory(self, device, is_scalar):
        return (lambda: torch.full(() if is_scalar else (2,), 1.0, device=device), lambda: rules.born(device, is_scalar))

    def do_data(self, device, is_scalar):
        return (lambda: torch.tensor(1.0 if is_scalar else [1.0, 2.0], device=device), lambda: rules.born(device, is_scalar))

    def do_leaf(self, device, is_scalar):
        def real():
            leaf = torch.full(() if is_scalar else (2,), 2.0, device=device, requires_grad=True)
            self.leaves.append(leaf)
            return leaf * 1

        return real, lambda: rules.born(device, is_scalar)

    def do_to(self, place, device):
        tensor, value = self.pick(place)
        return (lambda: tensor.to(device), lambda: rules.moved(value, device))

    def do_like(self, place):
        tensor, value = self.pick(place)
        return (lambda: torch.ones_like(tensor), lambda: rules.born(value.device, value.is_scalar))

    def do_view(self, place):
        tensor, value = self.pick(place)
        return (lambda: tensor.view_as(tensor), lambda: rules.view(value))

    def do_add(self, one, two):
        (a, left), (b, right) = self.pick(one), self.pick(two)
        return (lambda: a + b, lambda: rules.elementwise(left, right))

    def do_addcmul(self, one, two, three):
        (a, x), (b, y), (c, z) = self.pick(one), self.pick(two), self.pick(three)
        return (lambda: torch.addcmul(a, b, c), lambda: rules.addcmul(x, y, z))

    def do_add_(self, one, two):
        (a, left), (b, right) = self.pick(one), self.pick(two)
        if a.requires_grad or b.requires_grad or (left.is_scalar and not right.is_scalar):
            return (lambda: None, lambda: None)

        def model():
            rules.elementwise(left, right, out=left)
            return rules.view(left)

        return (lambda: a.add_(b), model)

    def do_copy_(self, one, two):
        (a, left), (b, right) = self.pick(one), self.pick(two)
        if a.requires_grad or (left.is_scalar and not right.is_scalar):
            return (lambda: None, lambda: None)
        return (lambda: a.detach().clone().copy_(b), lambda: rules.born(left.device, left.is_scalar))

    def do_cat(self, one, two):
        (a, left), (b, right) = self.pick(one), self.pick(two)
        return (lambda: torch.cat([a.reshape(-1), b.reshape(-1)])[:2] * 1, lambda: rules.strict(left, right))

    def do_mv(self, one, two):
        (a, left), (b, right) = self.pick(one), self.pick(two)
        return (lambda: torch.dot(a.expand(2), b.expand(2)).expand(2) * 1, lambda: rules.strict(left, right))

    def do_index(self, place, device):
        tensor, value = self.pick(place)
        index = torch.tensor([0, 0], device=device)
        return (lambda: tensor.reshape(-1)[index], lambda: rules.indexed(value, rules.born(device, False)))

    def do_sum(self, place):
        tensor, value = self.pick(place)
        return (lambda: tensor.sum(), lambda: rules.born(value.device, True))

    def do_backward(self, place):
        tensor, _ = self.pick(place)

        def real():
            try:
                if tensor.requires_grad:
                    tensor.sum().backward(retain_graph=True)
            except RuntimeError as error:  # what backward needs was written to since: autograd's rule on every device
                if "modified by an inplace operation" not in str(error):
                    raise
            for leaf in self.leaves:
                assert leaf.grad is None or leaf.grad.device == leaf.device

        real()
        return (lambda: None, lambda: None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, min_size=5, max_size=40))
def test_every_device_and_every_refusal_is_as_the_rules_say(steps):
    with simulate(3):
        program = Program()
        for name, *arguments in steps:
            program.run(name, *arguments)
        for tensor, value in program.pairs:
            assert str(tensor.device) == value.device


@pytest.mark.fuzz
def test_a_recording_on_top_changes_no_device_and_no_refusal():
    ran = []

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(step, min_size=5, max_size=40))
    def holds(steps):
        with simulate(3), record() as recording:
            program = Program()
            for name, *arguments in steps:
                program.run(name, *arguments)
            for tensor, value in program.pairs:
                assert str(tensor.device) == value.device
        assert [reason for reason in recording.trace.not_checked if reason.startswith("recorder")] == []
        ran.append(len(steps))

    holds()
    print(f"{len(ran)} random programs recorded on virtual GPUs, {sum(ran)} steps: every device and refusal by the rules")
