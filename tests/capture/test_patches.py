"""The registry of patches: layers that leave in any order, beside patches of the user."""

import copy
import itertools
import pickle
import threading
import types
from unittest import mock

import pytest
import torch

from devwidget.capture.patching import registry

ORDERS = list(itertools.permutations(range(3)))


class Owner:
    def method(self, x):
        return [x]

    @classmethod
    def of_class(cls, x):
        return [cls.__name__, x]

    @staticmethod
    def static(x):
        return [x]


class Heir(Owner):
    pass


class OfC(torch._C.Graph):
    """With a metaclass in C, as `torch.cuda.MemPool` in builds for CUDA."""

    def method(self, x):
        return [x]


def free(x):
    return [x]


MODULE = types.ModuleType("devwidget_test_module")
MODULE.free = free


def adding(mark):
    return lambda original: lambda *args: [*original(*args), mark]


PLACES = [
    (MODULE, "free", lambda: MODULE.free(1), [1]),
    (Owner, "method", lambda: Owner().method(1), [1]),
    (OfC, "method", lambda: OfC().method(1), [1]),
    (Owner, "of_class", lambda: Heir.of_class(1), ["Heir", 1]),
    (Owner, "static", lambda: Owner.static(1), [1]),
    (Heir, "method", lambda: Heir().method(1), [1]),
    (Heir, "of_class", lambda: Heir.of_class(1), ["Heir", 1]),
    (Heir, "static", lambda: Heir().static(1), [1]),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("owner", "name", "call", "plain"), PLACES)
def test_layers_leave_in_any_order_and_the_original_is_back(owner, name, call, plain, order):
    before = dict(vars(owner))
    layers = [registry.wrap_function(owner, name, adding(mark)) for mark in "abc"]
    left = list("abc")
    for number in order:
        assert call() == [*plain, *left]
        left.remove("abc"[number])
        layers[number].leave_layer()
    assert call() == plain
    assert dict(vars(owner)) == before
    assert all(vars(owner)[key] is value for key, value in before.items())


@pytest.mark.parametrize("order", ORDERS)
def test_a_name_that_was_absent_is_absent_again(order):
    layers = [registry.put_value(MODULE, "absent", mark) for mark in "abc"]
    for number in order:
        layers[number].leave_layer()
    assert not hasattr(MODULE, "absent")


@pytest.mark.parametrize("order", ORDERS)
def test_what_was_imported_means_the_original_whatever_leaves_when(order):
    layers, held = [], []
    for mark in "abc":
        layers.append(registry.wrap_function(MODULE, "free", adding(mark)))
        held.append(MODULE.free)
    for number in order:
        layers[number].leave_layer()
    assert [each(1) for each in held] == [[1]] * 3
    assert all(each == free and hash(each) == hash(free) for each in held)


def test_a_thread_inside_a_layer_passes_over_one_below_that_has_left():
    def waiting(original):
        def waits(x):
            inside.set()
            go_on.wait()
            return [*original(x), "above"]

        return waits

    inside, go_on, seen = threading.Event(), threading.Event(), []
    below = registry.wrap_function(MODULE, "free", adding("below"))
    above = registry.wrap_function(MODULE, "free", waiting)
    thread = threading.Thread(target=lambda: seen.append(MODULE.free(1)))
    thread.start()
    inside.wait()
    below.leave_layer()
    above.leave_layer()
    go_on.set()
    thread.join()
    assert seen == [[1, "above"]]
    assert MODULE.free is free


def test_a_patch_of_the_user_that_outlives_ours_stays_and_none_of_ours_acts():
    layer = registry.wrap_function(MODULE, "free", adding("ours"))
    users = mock.patch.object(MODULE, "free", lambda x: ["user", x])
    users.start()
    layer.leave_layer()
    assert MODULE.free(1) == ["user", 1]
    users.stop()
    assert MODULE.free(1) == [1]
    registry.wrap_function(MODULE, "free", adding("later")).leave_layer()  # the next recording tidies what mock has put back
    assert MODULE.free is free


def test_a_patch_of_the_user_that_ends_before_ours_leaves_the_original():
    layer = registry.wrap_function(MODULE, "free", adding("ours"))
    with mock.patch.object(MODULE, "free", lambda x: ["user", x]):
        assert MODULE.free(1) == ["user", 1]
    assert MODULE.free(1) == [1, "ours"]
    layer.leave_layer()
    assert MODULE.free is free


def test_ours_around_a_patch_of_the_user_calls_theirs():
    below = registry.wrap_function(MODULE, "free", adding("below"))
    with mock.patch.object(MODULE, "free", lambda x: ["user", x]):
        above = registry.wrap_function(MODULE, "free", adding("above"))
        assert MODULE.free(1) == ["user", 1, "above"]
        below.leave_layer()
        assert MODULE.free(1) == ["user", 1, "above"]
        above.leave_layer()
        assert MODULE.free(1) == ["user", 1]
    assert MODULE.free(1) == [1]
    registry.wrap_function(MODULE, "free", adding("later")).leave_layer()
    assert MODULE.free is free


def test_a_variable_that_torch_writes_is_as_before():
    MODULE.variable = 1
    layer = registry.put_value(MODULE, "variable", 2, always=True)
    MODULE.variable = 3
    layer.leave_layer()
    assert MODULE.variable == 1


@pytest.mark.parametrize(("owner", "name"), [(torch, "load"), (torch, "from_numpy"), (torch.Tensor, "register_hook")])
def test_a_patched_name_is_pickled_by_its_name_and_equals_the_original(owner, name):
    original = getattr(owner, name)
    with registry.make_patch(owner, name, adding("ours")):
        ours = getattr(owner, name)
        data = pickle.dumps(ours)
        assert pickle.loads(data) is ours
        assert copy.deepcopy(ours) is ours
        assert {original: 1}[ours] == {ours: 1}[original] == 1
        assert (ours.__name__, ours.__doc__) == (original.__name__, original.__doc__)
    assert pickle.loads(data) == pickle.loads(pickle.dumps(ours)) == original


def test_suspended_names_are_the_originals_and_layers_may_come_and_go_meanwhile():
    first, second = (registry.wrap_function(MODULE, "free", adding(mark)) for mark in "ab")
    with registry.suspend_layers():
        assert MODULE.free is free
        with registry.suspend_layers():
            first.leave_layer()
        third = registry.wrap_function(MODULE, "free", adding("c"))
        assert MODULE.free is free
    assert MODULE.free(1) == [1, "b", "c"]
    with registry.suspend_layers():
        second.leave_layer()
        third.leave_layer()
    assert MODULE.free is free


def test_what_is_written_while_names_are_suspended_stays():
    layer = registry.wrap_function(MODULE, "free", adding("ours"))
    with registry.suspend_layers():
        MODULE.free = len
    layer.leave_layer()
    assert MODULE.free is len
    MODULE.free = free
