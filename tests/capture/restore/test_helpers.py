"""Helper objects that a model may hold: put back, or named if they have changed, and never named if not."""

import _thread
import contextvars
import ctypes
import datetime
import decimal
import enum
import functools
import itertools
import locale
import logging
import mmap
import pathlib
import queue
import re
import sqlite3
import sys
import threading
import weakref
from dataclasses import dataclass, field

import attr
import numpy
import pandas
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
    "cell of a table": (
        lambda: pandas.DataFrame({"a": [1.0, 2.0]}), lambda h: h._mgr.blocks[0].values.fill(5), lambda h: h["a"].tolist()),
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


def _mapped():
    found = mmap.mmap(-1, 4096)
    found[:3] = b"abc"
    return found


def _counting(counter=0):
    def count():
        nonlocal counter
        counter += 1
        return counter

    return count


def _database():
    found = sqlite3.connect(":memory:")
    found.execute("create table a(b)")
    return found


EXOTIC = {
    "array of C": (lambda: (ctypes.c_int * 3)(1, 2, 3), lambda helper: helper.__setitem__(1, 9), list),
    "mapped memory": (_mapped, lambda helper: helper.__setitem__(slice(0, 2), b"zz"), lambda helper: helper[:4]),
    "variable of a context": (
        lambda: contextvars.ContextVar("a", default=1), lambda helper: helper.set(2), lambda helper: helper.get()),
    "lock": (threading.Lock, lambda helper: helper.acquire(), lambda helper: helper.locked()),
    "queue": (queue.Queue, lambda helper: helper.put(1), lambda helper: helper.qsize()),
    "logger": (lambda: logging.Logger("a"), lambda helper: helper.setLevel(7), lambda helper: helper.level),
    "locale": (
        lambda: None, lambda helper: locale.setlocale(locale.LC_ALL, "C.UTF-8"), lambda h: locale.setlocale(locale.LC_ALL)),
    "database": (_database, lambda helper: helper.execute("insert into a values(1)"), lambda helper: helper.total_changes),
    "iterator over a list": (lambda: iter([1, 2]), next, lambda helper: helper.__length_hint__()),
    "counter": (itertools.count, next, repr),
    "generator": (lambda: (row for row in "ab"), next, lambda helper: len(list(helper))),
    "closure": (_counting, lambda helper: helper(), lambda helper: helper.__closure__[0].cell_contents),
    "code": (
        lambda: lambda: 1, lambda helper: setattr(helper, "__code__", (lambda: 2).__code__), lambda helper: helper()),
    "attribute of a class": (
        lambda: type("A", (), {"count": 0})(), lambda helper: setattr(type(helper), "count", 1), lambda h: h.count),
}  # fmt: skip


@pytest.fixture
def _locale_as_it_was():
    before = locale.setlocale(locale.LC_ALL)
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.mark.usefixtures("_locale_as_it_was")
@pytest.mark.parametrize("name", EXOTIC)
def test_what_stands_for_something_outside_is_put_back_or_named(name):
    if sys.version_info >= (3, 14) and name == "counter":
        pytest.skip("Python 3.14 does not tell where an iterator of itertools stands")
    make, change, read = EXOTIC[name]
    before, helper = str(read(make())), make()
    assert _traced(helper, change) or str(read(helper)) == before


def test_what_stays_as_it_is_is_not_named(tmp_path):
    fixed = [
        pathlib.Path("a"), datetime.datetime.now(), decimal.Decimal("1.5"), Colour.RED, re.match("a", "ab"), numpy.float32(1),
        (numpy.exp, numpy.mean, numpy.float32, numpy.dtype("f4")), (torch.relu, torch.nn.functional.gelu, torch.strided),
        numpy, ValueError("a"), object(), threading.Thread(target=print), torch._C._get_tracing_state,
        torch.nn.Linear(1, 1).register_forward_hook(print), torch.utils.data.DataLoader([1, 2]), _thread.allocate_lock(),
    ]  # fmt: skip
    made = [make() for make, _, _ in [*BACK.values(), *EXOTIC.values()]]
    with (tmp_path / "log").open("w") as file:
        assert _traced([*fixed, *made, file], lambda helpers: None) == ()


def test_an_object_of_c_that_nobody_can_read_is_named():
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE())
    assert _traced(tokenizer, lambda helper: helper.enable_truncation(5)) == ("`helper` (not looked at, a Tokenizer)",)


def test_an_open_file_that_was_written_is_named(tmp_path):
    with (tmp_path / "log").open("w") as file:
        assert _traced(file, lambda helper: helper.write("a")) == ("`helper` (a TextIOWrapper that has changed)",)
