"""A loader or iterator that gives the batch of a trace is not moved by that, or the trace says so."""

import gc
import io
import itertools
import multiprocessing
import signal
import weakref

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

import devwidget
from devwidget.capture.step.batch import take_item
from devwidget.records.errors import BatchError

TAKEN = "`batch` (one item was taken from the iterator)"


def rows():
    return [torch.full((2,), float(number)) for number in range(4)]


class Popping:
    """An iterator of the program's own."""

    def __init__(self, items):
        self.items, self.given = items, 0

    def __iter__(self):
        return self

    def __next__(self):
        if not self.items:
            raise StopIteration
        self.given += 1
        return self.items.pop(0)


GOES_ON = {
    "list": iter,
    "of the program": Popping,
    "map": lambda rows: map(torch.clone, rows),
    "pairs of one iterator": lambda rows: zip(*[iter(rows)] * 2, strict=True),
    "generator": lambda rows: (row for row in rows),
    "map of a generator": lambda rows: map(torch.clone, (row for row in rows)),
    "loader": lambda rows: iter(DataLoader(rows, batch_size=None)),
    "calls": lambda rows: iter(rows.pop, None),
}


class Loose(nn.Module):
    """Takes anything."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, *inputs):
        return self.scale * 2


def left(iterator):
    """The next items as numbers; the tensors of two runs are others."""
    return str(list(itertools.islice(iterator, 6)))


@pytest.mark.parametrize("name", GOES_ON)
def test_an_iterator_is_said_to_be_further(name):
    source, untouched = GOES_ON[name](rows()), GOES_ON[name](rows())
    assert devwidget.trace(Loose(), source).not_restored == (TAKEN,)
    next(untouched)
    assert left(itertools.islice(source, 2)) == left(itertools.islice(untouched, 2))


def test_a_file_is_said_to_be_further():
    source = io.StringIO("a\nb\nc\n")
    assert devwidget.trace(Loose(), source).not_restored == (TAKEN,)
    assert len(list(source)) == 2


def test_an_iterator_at_its_end_is_an_error():
    with pytest.raises(BatchError, match="exhausted"):
        take_item(iter([]))
    with pytest.raises(BatchError, match="empty"):
        take_item(DataLoader([]))


class Counting(Dataset):
    """A dataset that draws and counts."""

    def __init__(self):
        self.asked, self.noise, self.rng = [], torch.Generator().manual_seed(1), numpy.random.default_rng(2)

    def __len__(self):
        return 6

    def __getitem__(self, place):
        self.asked.append(place)
        return torch.rand(2, generator=self.noise) + self.rng.random()


def _loaders():
    drawn = torch.Generator().manual_seed(3)
    weighted = WeightedRandomSampler([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 6, generator=torch.Generator().manual_seed(4))
    return [DataLoader(Counting(), 2, shuffle=True, generator=drawn), DataLoader(Counting(), 2, sampler=weighted)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_loader_gives_what_it_would_have_given(number):
    loader, untouched = _loaders()[number], _loaders()[number]
    assert devwidget.trace(Loose(), loader).not_restored == ()
    assert loader.dataset.asked == []
    assert str(list(loader)) == str(list(untouched))


@pytest.fixture
def _workers():
    """Torch leaves its handler for the end of workers in place."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.process
@pytest.mark.usefixtures("_workers")
def test_the_loop_over_a_loader_with_persistent_workers_goes_on():
    loader = DataLoader(rows(), batch_size=None, num_workers=1, persistent_workers=True)
    loop = iter(loader)
    first, left = next(loop), []
    devwidget.trace(Loose(), loader)
    left += loop
    assert torch.equal(torch.stack([first, *left]), torch.stack(rows()))
    assert iter(loader) is loop
    loader._iterator._shutdown_workers()


@pytest.mark.process
@pytest.mark.usefixtures("_workers")
def test_no_worker_outlives_what_started_it():
    def run(loader):
        devwidget.trace(Loose(), iter(loader))
        devwidget.trace(Loose(), loader)

    run(DataLoader(rows(), batch_size=None, num_workers=2))
    gc.collect()
    assert multiprocessing.active_children() == []


def test_neither_the_iterator_nor_its_item_is_held():
    def run():
        row = torch.zeros(1, 2)
        source = Popping([row])
        devwidget.trace(Loose(), source)
        devwidget.trace(Loose(), iter([row]))
        return weakref.ref(row), weakref.ref(source)

    gone = run()
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_the_data_behind_a_loader_is_not_read_through(monkeypatch):
    from devwidget.capture import restore
    from devwidget.capture.restore.keepers import Keeper

    class Large(Counting):
        def __init__(self):
            super().__init__()
            self.rows = numpy.zeros(restore.MOST_BYTES + 1, dtype=numpy.uint8)

    monkeypatch.setattr(restore, "ARRAY", Keeper(lambda block: pytest.fail("all of it was read")))
    assert devwidget.trace(Loose(), DataLoader(Large(), 2)).error == ""
