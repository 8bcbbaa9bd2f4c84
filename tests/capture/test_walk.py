"""The walk over objects: nearest paths, each object once, and no code of the user's."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from devwidget.capture.walk import TooManyObjects, walk

TENSOR = torch.zeros(2)


def paths_to(wanted, root, **limits):
    places = walk([("root", root)], **{"enter": lambda value: True, "most": 1000, "deepest": 6, **limits})
    return [place.path for place in places if place.value is wanted]


def keeping():
    inside = TENSOR
    return lambda: inside


class Owner:
    def __init__(self):
        self.kept = {"a": [TENSOR]}

    def method(self):
        return self.kept


def module():
    made = nn.Sequential(nn.Identity())
    made[0].register_buffer("seen", TENSOR)
    return made


@pytest.mark.parametrize(
    ("root", "path"),
    [
        (Owner(), "root.kept['a'][0]"),
        (Owner().method, "root.__self__.kept['a'][0]"),
        (keeping(), "root.__closure__.inside"),
        (functools.partial(print, TENSOR), "root.args[0]"),
        (module(), "root.0.seen"),
    ],
)
def test_a_place_is_written_as_in_the_program(root, path):
    assert paths_to(TENSOR, root) == [path]


def test_an_object_comes_once_at_its_nearest_path():
    loop = [[TENSOR], TENSOR]
    loop.append(loop)
    assert paths_to(TENSOR, loop) == ["root[1]"]


def test_a_walk_ends_where_there_is_too_much():
    with pytest.raises(TooManyObjects):
        list(walk([("", [[n] for n in range(10)])], enter=lambda value: True, most=5, deepest=3))


def test_of_a_long_container_the_last_items_are_looked_at():
    assert paths_to(TENSOR, [[], [], TENSOR], most_items=1) == ["root[2]"]
    assert paths_to(TENSOR, [TENSOR, [], []], most_items=1) == []


class Hostile:
    """Whatever is asked of it fails."""

    def __getattribute__(self, name):
        raise AssertionError(name)

    __eq__ = __hash__ = __iter__ = __len__ = __getattribute__


def test_no_code_of_the_user_runs():
    hostile = Hostile()
    object.__setattr__(hostile, "kept", TENSOR)
    assert paths_to(TENSOR, [hostile]) == ["root[0].kept"]
