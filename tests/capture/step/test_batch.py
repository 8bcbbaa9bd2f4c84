import gc
import itertools
import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from devwidget.capture.step.batch import Inputs, arguments
from devwidget.records.errors import BatchError


class Two(nn.Module):
    def forward(self, image, mask=None):
        return image


X, Y = torch.ones(2, 3), torch.zeros(2)


def test_a_tensor_is_one_argument_and_a_tuple_several():
    assert arguments(Two(), X).args == (X,)
    assert arguments(Two(), (X, Y)).args == (X, Y)


def test_a_mapping_is_keywords_and_inputs_are_both():
    assert arguments(Two(), {"image": X}).kwargs == {"image": X}
    both = arguments(Two(), Inputs(X, mask=Y))
    assert (both.args, both.kwargs) == ((X,), {"mask": Y})


def test_a_loader_gives_its_next_item():
    loader = DataLoader(TensorDataset(X), batch_size=2)
    assert torch.equal(arguments(Two(), loader).args[0], X)


def test_an_iterator_is_consumed_once_only():
    rows = (row for row in (X, Y))
    assert arguments(Two(), rows).args == arguments(Two(), rows).args == (X,)
    assert next(rows) is Y


def test_the_last_item_of_a_pair_is_the_target_when_there_is_a_loss():
    found = arguments(nn.Linear(3, 1), [X, Y], has_loss=True)
    assert found.args == (X,)
    assert found.target is Y


def test_no_batch_is_an_error_that_says_how():
    with pytest.raises(BatchError, match=r"no batch to trace(.|\n)*next\(iter\(loader\)\)"):
        arguments(Two(), None)


def test_a_batch_that_does_not_fit_shows_the_signature():
    with pytest.raises(BatchError, match=r"does not fit Two.forward(.|\n)*\(image, mask=None\)(.|\n)*Tensor\[2, 3\]"):
        arguments(Two(), {"picture": X})


def test_an_empty_iterator_is_an_error():
    with pytest.raises(BatchError, match="exhausted"):
        arguments(Two(), (x for x in ()))


def test_the_wrapped_model_decides_what_fits():
    with pytest.raises(BatchError):
        arguments(nn.DataParallel(Two()), {"picture": X})


ITERATORS = {
    "list": lambda rows: iter(rows),
    "tuple": lambda rows: iter(tuple(rows)),
    "map": lambda rows: map(torch.clone, rows),
    "zip": lambda rows: zip(rows, strict=True),
    "filter": lambda rows: filter(lambda row: True, rows),
    "islice": lambda rows: itertools.islice(rows, 2),
    "chain": lambda rows: itertools.chain(rows),
    "reversed": lambda rows: reversed([rows[1], rows[0]]),
    "dict": lambda rows: iter(dict(enumerate(rows)).values()),
    "loader": lambda rows: iter(DataLoader(rows, batch_size=None)),
    "generator": lambda rows: (row for row in rows),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_of_any_kind_gives_one_item(name):
    rows = ITERATORS[name]([X, Y])
    first, again = arguments(nn.Identity(), rows), arguments(nn.Identity(), rows)
    assert torch.equal(first.args[0], X)
    assert again.args[0] is first.args[0]
    left = list(rows)
    assert len(left) == 1


def test_an_iterator_that_nobody_holds_is_let_go():
    row = torch.ones(3)
    gone = weakref.ref(row)
    arguments(nn.Identity(), iter([row]))
    del row
    arguments(nn.Identity(), iter([X]))
    gc.collect()
    assert gone() is None


def test_the_items_of_the_last_eight_iterators_are_remembered():
    many = [iter([torch.full((1,), float(number)), Y]) for number in range(9)]
    for each in many:
        arguments(nn.Identity(), each)
    assert arguments(nn.Identity(), many[8]).args[0].item() == 8
    assert arguments(nn.Identity(), many[1]).args[0].item() == 1
    assert arguments(nn.Identity(), many[0]).args[0] is Y  # forgotten, and so its next item


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_takes_a_batch():
    assert arguments(torch.jit.script(nn.Identity()), X).args == (X,)


class WithRaisingAttributes(nn.Module):
    def forward(self, x):
        return x

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_a_model_whose_getattr_raises_takes_a_batch():
    assert arguments(WithRaisingAttributes(), X).args == (X,)
