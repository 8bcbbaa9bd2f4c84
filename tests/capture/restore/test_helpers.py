"""Helper objects of every kind that a model may hold: put back, or named if they have changed, and never named if not."""

import collections
import contextvars
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import io
import logging
import pathlib
import queue
import re
import sqlite3
import threading
import types
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


class Alive:
    """What a weak reference is to."""

    def __init__(self):
        self.count = 0


class Handler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.sink = Alive()

    def emit(self, record):
        self.sink.count += 1


ALIVE = Alive()
LOCAL = threading.local()
LOCAL.count = 0
VARIABLE = contextvars.ContextVar("a")
VARIABLE.set(1)
CALLED = functools.lru_cache(lambda: CALLS.append(1))
CALLS: list[int] = []


def _cache():
    from transformers import DynamicCache

    found = DynamicCache()
    found.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), 0)
    return found


def _logger():
    found = logging.Logger("of a model", logging.INFO)
    found.addHandler(Handler())
    return found


def _graph():
    import networkx

    return networkx.Graph([(1, 2)])


BACK = {
    "Counter": (lambda: collections.Counter("a"), lambda helper: helper.update("b"), dict),
    "defaultdict": (lambda: collections.defaultdict(list), lambda helper: helper["a"].append(1), dict),
    "ChainMap": (lambda: collections.ChainMap({"a": 1}), lambda helper: helper.update(b=2), dict),
    "UserDict": (lambda: collections.UserDict(a=1), lambda helper: helper.update(b=2), dict),
    "data class": (Counts, lambda helper: (helper.seen.append(1), setattr(helper, "number", 2)), repr),
    "attrs": (Slots, lambda helper: setattr(helper, "number", 2), repr),
    "text in memory": (
        lambda: io.StringIO("ab"), lambda helper: (helper.seek(2), helper.write("c")), lambda h: (h.getvalue(), h.tell())),
    "bytes in memory": (lambda: io.BytesIO(b"ab"), lambda helper: helper.write(b"cd"), lambda h: (h.getvalue(), h.tell())),
    "namespace": (lambda: types.SimpleNamespace(a=1), lambda helper: setattr(helper, "b", 2), repr),
    "partial": (lambda: functools.partial(print, [1]), lambda helper: helper.args[0].append(2), lambda h: list(h.args[0])),
    "view of a dict": (lambda: types.MappingProxyType({"a": [1]}), lambda helper: helper["a"].append(2), repr),
    "weak reference": (lambda: weakref.ref(ALIVE), lambda helper: setattr(helper(), "count", 5), lambda h: h().count),
    "variables of a thread": (lambda: LOCAL, lambda helper: setattr(helper, "count", 5), lambda h: h.count),
    "variable of a context": (lambda: VARIABLE, lambda helper: helper.set(2), lambda helper: helper.get()),
    "sink of a handler": (_logger, lambda helper: helper.info("a"), lambda helper: helper.handlers[0].sink.count),
    "cached function": (lambda: CALLED, lambda helper: helper(), lambda helper: list(CALLS)),
    "cache of transformers": (
        _cache, lambda h: h.update(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2), 0), lambda h: h.get_seq_length()),
    "graph": (_graph, lambda helper: helper.add_edge(3, 4), lambda helper: list(helper.edges)),
    "cell of a table": (
        lambda: pandas.DataFrame({"a": [1.0, 2.0]}), lambda h: h._mgr.blocks[0].values.fill(5), lambda h: h["a"].tolist()),
}  # fmt: skip
NAMED = {
    "column of a table": (lambda: pandas.DataFrame({"a": [1.0, 2.0]}), lambda h: h.insert(0, "b", 1), "BlockManager"),
    "lock": (threading.Lock, lambda helper: helper.acquire(), "lock"),
    "lock that may be taken again": (threading.RLock, lambda helper: helper.acquire(), "RLock"),
    "event": (threading.Event, lambda helper: helper.set(), "Event"),
    "queue": (queue.Queue, lambda helper: helper.put(1), "Queue"),
    "simple queue": (queue.SimpleQueue, lambda helper: helper.put(1), "SimpleQueue"),
    "level of a logger": (_logger, lambda helper: helper.setLevel("DEBUG"), "Logger"),
    "hash": (hashlib.sha256, lambda helper: helper.update(b"a"), "HASH"),
    "database": (
        lambda: sqlite3.connect(":memory:"), lambda h: (h.execute("create table a(b)"), h.execute("insert into a values(1)")),
        "Connection"),
}  # fmt: skip
FIXED = {
    **{name: make for name, (make, _, _) in BACK.items()},
    **{name: make for name, (make, _, _) in NAMED.items()},
    "path": lambda: pathlib.Path("a") / "b",
    "date": datetime.datetime.now,
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "enum": lambda: Colour.RED,
    "match": lambda: re.match("a", "ab"),
    "number of NumPy": lambda: numpy.float32(1),
    "function of NumPy": lambda: (numpy.exp, numpy.mean, numpy.float32, numpy.dtype("f4")),
    "functions of torch": lambda: (torch.relu, torch.nn.functional.gelu, torch.float32, torch.strided, torch.device("cpu")),
    "a module": lambda: numpy,
    "an error": lambda: ValueError("a"),
    "sentinel": object,
    "a thread": lambda: threading.Thread(target=print),
    "a table that is read": lambda: pandas.DataFrame({"a": [1.0]}),
    "a function of C++": lambda: torch._C._get_tracing_state,
    "hooks": lambda: torch.nn.Linear(1, 1).register_forward_hook(print),
    "loader": lambda: torch.utils.data.DataLoader([1, 2]),
    "dimension": lambda: inspect_signature(),
}


def inspect_signature():
    import inspect

    return inspect.signature(print)


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


@pytest.mark.parametrize("name", NAMED)
def test_a_helper_that_cannot_be_put_back_is_named(name):
    make, change, kind = NAMED[name]
    (lost,) = _traced(make(), change)
    assert lost.startswith("`helper")
    assert f"(a {kind} that has changed)" in lost


@pytest.mark.parametrize("name", FIXED)
def test_a_helper_that_stays_as_it_is_is_not_named(name):
    assert _traced(FIXED[name](), lambda helper: None) == ()


def test_a_table_that_is_read_is_not_named():
    assert _traced(pandas.DataFrame({"a": [1.0], "b": [2]}), lambda helper: (helper["a"].mean(), helper.iloc[0])) == ()


def test_an_object_of_c_that_nobody_can_read_is_named():
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.BPE())
    assert _traced(tokenizer, lambda helper: helper.enable_truncation(5)) == ("`helper` (not looked at, a Tokenizer)",)


def test_an_open_file_that_was_written_is_named(tmp_path):
    with (tmp_path / "log").open("w") as file:
        assert _traced(file, lambda helper: helper.write("a")) == ("`helper` (a TextIOWrapper that has changed)",)
        assert _traced(file, lambda helper: None) == ()
