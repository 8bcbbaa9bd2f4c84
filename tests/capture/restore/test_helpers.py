"""Helper objects that a model may hold: put back, or named if they have changed, and never named if not."""

import _thread
import datetime
import decimal
import enum
import functools
import logging
import pathlib
import queue
import re
import threading
import weakref
from dataclasses import dataclass, field

import attr
import numpy
import pytest
import torch

import devwidget
from tests.capture.restore.changing_models import Changing


class Colour(enum.Enum):
    RED = 1


@dataclass
class Counts:
    seen: list = field(default_factory=list)
    number: int = 0


@attr.s(slots=True)
class Slots:
    number = attr.ib(default=0)


ALIVE = Counts()
CALLED = functools.lru_cache(lambda: CALLS.append(1))
CALLS: list[int] = []


def _cache():
    from transformers import DynamicCache

    found = DynamicCache()
    found.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), 0)
    return found


BACK = {
    "data class": (Counts, lambda helper: (helper.seen.append(1), setattr(helper, "number", 2)), repr),
    "attrs": (Slots, lambda helper: setattr(helper, "number", 2), repr),
    "partial": (lambda: functools.partial(print, [1]), lambda helper: helper.args[0].append(2), lambda h: list(h.args[0])),
    "weak reference": (lambda: weakref.ref(ALIVE), lambda helper: setattr(helper(), "number", 5), lambda h: h().number),
    "cached function": (lambda: CALLED, lambda helper: helper(), lambda helper: list(CALLS)),
    "cache of transformers": (
        _cache, lambda h: h.update(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2), 0), lambda h: h.get_seq_length()),
}  # fmt: skip


def _traced(helper, change):
    traced = devwidget.trace(Changing(lambda m, x: change(m.helper), helper=helper), torch.rand(2, 4))
    assert traced.error == ""
    return traced.not_restored


@pytest.mark.parametrize("name", BACK)
def test_a_helper_is_put_back(name):
    make, change, read = BACK[name]
    helper = make()
    before = str(read(helper))
    assert _traced(helper, change) == ()
    assert str(read(helper)) == before


def _counting(counter=0):
    def count():
        nonlocal counter
        counter += 1
        return counter

    return count


NAMED = {
    "queue": (queue.Queue, lambda helper: helper.put(1)),
    "logger": (lambda: logging.Logger("a"), lambda helper: helper.setLevel(7)),
    "iterator over a list": (lambda: iter([1, 2]), next),
    "closure": (_counting, lambda helper: helper()),
    "code": (lambda: lambda: 1, lambda helper: setattr(helper, "__code__", (lambda: 2).__code__)),
    "attribute of a class": (
        lambda: type("Counter", (), {"count": 0})(), lambda helper: setattr(type(helper), "count", 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_put_back_is_named(name):
    make, change = NAMED[name]
    assert len(_traced(make(), change)) == 1


def test_what_has_changed_is_named_by_its_path_or_its_class():
    make, change = NAMED["attribute of a class"]
    assert _traced(make(), change) == ("`Counter` (a type that has changed)",)
    assert _traced(_counting(), lambda helper: helper()) == ("`helper` (a function that has changed)",)


def test_what_stays_as_it_is_is_not_named(tmp_path):
    fixed = [
        pathlib.Path("a"), datetime.datetime.now(), decimal.Decimal("1.5"), Colour.RED, re.match("a", "ab"), numpy.float32(1),
        (numpy.exp, numpy.mean, numpy.float32, numpy.dtype("f4")), (torch.relu, torch.nn.functional.gelu, torch.strided),
        numpy, ValueError("a"), object(), threading.Thread(target=print), torch._C._get_tracing_state,
        torch.nn.Linear(1, 1).register_forward_hook(print), torch.utils.data.DataLoader([1, 2]), _thread.allocate_lock(),
    ]  # fmt: skip
    made = [make() for make, *_ in [*BACK.values(), *NAMED.values()]]
    with (tmp_path / "log").open("w") as file:
        assert _traced([*fixed, *made, file], lambda helpers: None) == ()


def test_an_open_file_that_was_written_is_named(tmp_path):
    with (tmp_path / "log").open("w") as file:
        assert _traced(file, lambda helper: helper.write("a")) == ("`helper` (a TextIOWrapper that has changed)",)
