"""Hubs: listeners that come and leave in any order, beside patches of the user."""

import copy
import itertools
import pickle
import threading
import types
from unittest import mock

import pytest
import torch

from devwidget.capture.patching import registry
from devwidget.capture.undo import Undo

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


def patched(owner, name, mark):
    return registry.Patch(owner, name, adding(mark)).__enter__()


def leave(patch):
    patch.__exit__(None, None, None)


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
def test_listeners_leave_in_any_order_and_the_original_is_back(owner, name, call, plain, order):
    before = dict(vars(owner))
    patches = [patched(owner, name, mark) for mark in "abc"]
    left = list("abc")
    for number in order:
        assert call() == [*plain, *left]
        left.remove("abc"[number])
        leave(patches[number])
    assert call() == plain
    assert dict(vars(owner)) == before
    assert all(vars(owner)[key] is value for key, value in before.items())


@pytest.mark.parametrize("order", ORDERS)
def test_a_name_that_was_absent_is_absent_again(order):
    patches = [registry.Patch(MODULE, "absent", value=mark).__enter__() for mark in "abc"]
    for number in order:
        leave(patches[number])
    assert not hasattr(MODULE, "absent")


@pytest.mark.parametrize("order", ORDERS)
def test_what_was_imported_means_the_original_whatever_leaves_when(order):
    patches, held = [], []
    for mark in "abc":
        patches.append(patched(MODULE, "free", mark))
        held.append(MODULE.free)
    for number in order:
        leave(patches[number])
    assert [each(1) for each in held] == [[1]] * 3
    assert all(each == free and hash(each) == hash(free) for each in held)


def test_a_call_that_is_inside_goes_on_as_it_began():
    def waiting(original):
        def waits(x):
            inside.set()
            go_on.wait()
            return [*original(x), "above"]

        return waits

    inside, go_on, seen = threading.Event(), threading.Event(), []
    below = patched(MODULE, "free", "below")
    above = registry.Patch(MODULE, "free", waiting).__enter__()
    thread = threading.Thread(target=lambda: seen.append(MODULE.free(1)))
    thread.start()
    inside.wait()
    leave(below)
    leave(above)
    go_on.set()
    thread.join()
    assert seen == [[1, "below", "above"]]
    assert MODULE.free is free


def test_a_patch_of_the_user_that_outlives_ours_stays_and_none_of_ours_acts():
    patch = patched(MODULE, "free", "ours")
    users = mock.patch.object(MODULE, "free", lambda x: ["user", x])
    users.start()
    leave(patch)
    assert MODULE.free(1) == ["user", 1]
    users.stop()
    assert MODULE.free(1) == [1]
    registry.sweep()  # the next recording tidies what mock has put back
    assert MODULE.free is free


def test_a_patch_of_the_user_that_ends_before_ours_leaves_the_original():
    patch = patched(MODULE, "free", "ours")
    with mock.patch.object(MODULE, "free", lambda x: ["user", x]):
        assert MODULE.free(1) == ["user", 1]
    assert MODULE.free(1) == [1, "ours"]
    leave(patch)
    assert MODULE.free is free


def test_ours_around_a_patch_of_the_user_calls_theirs():
    below = patched(MODULE, "free", "below")
    with mock.patch.object(MODULE, "free", lambda x: ["user", x]):
        above = patched(MODULE, "free", "above")
        assert MODULE.free(1) == ["user", 1, "above"]
        leave(below)
        assert MODULE.free(1) == ["user", 1, "above"]
        leave(above)
        assert MODULE.free(1) == ["user", 1]
    assert MODULE.free(1) == [1]
    leave(patched(MODULE, "free", "later"))
    assert MODULE.free is free


def test_a_variable_that_torch_writes_is_as_before():
    MODULE.variable = 1
    patch = registry.Patch(MODULE, "variable", value=2, always=True).__enter__()
    MODULE.variable = 3
    leave(patch)
    assert MODULE.variable == 1


@pytest.mark.parametrize(("owner", "name"), [(torch, "load"), (torch, "from_numpy"), (torch.Tensor, "register_hook")])
def test_a_patched_name_is_pickled_by_its_name_and_equals_the_original(owner, name):
    original = getattr(owner, name)
    with registry.Patch(owner, name, adding("ours")):
        ours = getattr(owner, name)
        data = pickle.dumps(ours)
        assert pickle.loads(data) is ours
        assert copy.deepcopy(ours) is ours
        assert {original: 1}[ours] == {ours: 1}[original] == 1
        assert (ours.__name__, ours.__doc__) == (original.__name__, original.__doc__)
    assert pickle.loads(data) == pickle.loads(pickle.dumps(ours)) == original


def test_suspended_names_are_the_originals_and_listeners_may_come_and_go_meanwhile():
    first, second = (patched(MODULE, "free", mark) for mark in "ab")
    with registry.suspend_patches():
        assert MODULE.free is free
        with registry.suspend_patches():
            leave(first)
        third = patched(MODULE, "free", "c")
        assert MODULE.free is free
    assert MODULE.free(1) == [1, "b", "c"]
    with registry.suspend_patches():
        leave(second)
        leave(third)
    assert MODULE.free is free


def test_what_is_written_while_names_are_suspended_stays():
    patch = patched(MODULE, "free", "ours")
    with registry.suspend_patches():
        MODULE.free = len
    leave(patch)
    assert MODULE.free is len
    MODULE.free = free


def test_a_hub_that_an_exception_has_left_forwards_and_goes_with_the_next_call(monkeypatch):
    patch = patched(MODULE, "free", "ours")
    with monkeypatch.context() as broken:
        broken.setattr(registry, "_write_attribute", raise_memory_error)
        with pytest.raises(MemoryError):
            leave(patch)
    assert (MODULE.free is free, MODULE.free(1)) == (False, [1])
    registry.sweep()
    assert MODULE.free is free


def raise_memory_error(*args):
    raise MemoryError


def test_a_listener_hears_what_its_own_threads_call():
    heard, here = [], [True]
    with Undo() as undo:
        registry.listen(lambda: here[0], MODULE, "free", lambda original, x: heard.append(x) or original(x), undo)
        assert MODULE.free(1) == [1]
        here[0] = False
        assert MODULE.free(2) == [2]
    assert heard == [1]
