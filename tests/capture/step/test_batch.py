import pytest
import torch
from torch import nn

from devwidget.capture.step.batch import Inputs, cut_batch, make_arguments
from devwidget.records.errors import BatchError


class Two(nn.Module):
    def forward(self, image, mask=None):
        return image


X, Y = torch.ones(2, 3), torch.zeros(2)


def test_a_tensor_is_one_argument_and_a_tuple_several():
    assert make_arguments(Two(), X).args == (X,)
    assert make_arguments(Two(), (X, Y)).args == (X, Y)


def test_a_mapping_is_keywords_and_inputs_are_both():
    assert make_arguments(Two(), {"image": X}).kwargs == {"image": X}
    both = make_arguments(Two(), Inputs(X, mask=Y))
    assert (both.args, both.kwargs) == ((X,), {"mask": Y})


def test_an_iterator_gives_its_next_item():
    rows = (row for row in (X, Y))
    assert make_arguments(Two(), rows).args == (X,)
    assert next(rows) is Y


def test_the_last_item_of_a_pair_is_the_target_when_there_is_a_loss():
    found = make_arguments(nn.Linear(3, 1), [X, Y], loss_fn=nn.functional.mse_loss)
    assert found.args == (X,)
    assert found.target is Y


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, nn.MSELoss(), lambda out, wanted: out.sum()])
def test_the_last_item_is_the_target_of_a_loss_that_needs_one_where_forward_could_take_it(loss):
    found = make_arguments(Two(), (X, Y), loss_fn=loss)
    assert found.args == (X,)
    assert found.target is Y


@pytest.mark.parametrize("loss", [lambda out: out.sum(), lambda out, weight=2.0: weight * out.sum()])
def test_a_loss_of_the_output_alone_leaves_all_items_to_forward(loss):
    assert make_arguments(Two(), (X, Y), loss_fn=loss).args == (X, Y)


def test_without_a_loss_a_loader_of_pairs_gives_its_first_part_and_a_pair_of_yours_is_refused():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X), batch_size=2)
    assert torch.equal(make_arguments(nn.Linear(3, 1), loader).args[0], X)
    assert torch.equal(make_arguments(nn.Linear(3, 1), iter(loader)).args[0], X)
    with pytest.raises(BatchError):
        make_arguments(nn.Linear(3, 1), (X, X))


def test_no_batch_is_an_error_that_says_how():
    with pytest.raises(BatchError, match=r"no batch to trace(.|\n)*next\(iter\(loader\)\)"):
        make_arguments(Two(), None)


def test_a_batch_that_does_not_fit_shows_the_signature():
    with pytest.raises(BatchError, match=r"does not fit Two.forward(.|\n)*\(image, mask=None\)(.|\n)*Tensor\[2, 3\]"):
        make_arguments(Two(), {"picture": X})


def test_the_wrapped_model_decides_what_fits():
    with pytest.raises(BatchError):
        make_arguments(nn.DataParallel(Two()), {"picture": X})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_takes_a_batch():
    assert make_arguments(torch.jit.script(nn.Identity()), X).args == (X,)


class WithRaisingAttributes(nn.Module):
    def forward(self, x):
        return x

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_a_model_whose_getattr_raises_takes_a_batch():
    assert make_arguments(WithRaisingAttributes(), X).args == (X,)


def test_a_cut_batch_has_the_first_samples_and_all_that_is_no_sample():
    batch = {"image": torch.ones(4, 3), "mask": torch.ones(7, 7), "scale": torch.tensor(2.0), "sizes": (torch.arange(4), "px")}
    cut, target = cut_batch(batch, torch.zeros(4), 1)
    assert [cut["image"].shape, cut["mask"].shape, cut["scale"].shape] == [(1, 3), (7, 7), ()]
    assert cut["sizes"][0].tolist() == [0]
    assert len(target) == 1
    assert len(batch["image"]) == 4
