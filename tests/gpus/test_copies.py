"""Labels survive deepcopy, pickle, `torch.save` and `torch.load`."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


def test_copies_of_tensors_stay_where_they_are():
    x = torch.randn(3, device=SECOND)
    for twin in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert twin.device == SECOND
        assert torch.equal(twin, x)


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (None, "cuda:1"),
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ({"cuda:1": "cuda:0"}, "cuda:0"),
        (lambda storage, location: storage.cuda(0), "cuda:0"),
        ("meta", "meta"),
    ],
)
def test_loading_goes_where_the_map_says(location, expected):
    loaded = torch.load(saved({"x": torch.ones(3, device=SECOND)}), map_location=location)
    assert str(loaded["x"].device) == expected


def test_views_share_their_storage_after_loading():
    x = torch.zeros(4, device=SECOND)
    base, view = torch.load(saved([x, x[1:]]))
    view.fill_(1)
    assert base.tolist() == [0, 1, 1, 1]
    assert view.device == SECOND


def test_a_checkpoint_from_a_gpu_that_is_missing_is_refused():
    buffer = io.BytesIO(saved(torch.ones(1, device=SECOND)).getvalue().replace(b"cuda:1", b"cuda:7"))
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on CUDA device 7"):
        torch.load(buffer)


def test_a_lazy_module_is_copied_and_becomes_real_on_its_gpu():
    lazy = copy.deepcopy(nn.LazyLinear(3).to(SECOND))
    assert lazy(torch.ones(2, 4, device=SECOND)).device == SECOND
    assert lazy.weight.device == SECOND
