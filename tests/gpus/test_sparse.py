"""Sparse and nested tensors on virtual GPUs: they have no storage of their own, their parts say where they are."""

import pytest
import torch
from torch import nn

from tests.older_torch import SPARSE, before

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = [
    pytest.mark.usefixtures("gpus"),
    pytest.mark.filterwarnings("ignore:Sparse|The PyTorch API of nested tensors:UserWarning"),
]


def sparse(device=SECOND):
    return torch.eye(3).to_sparse().to(device)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: a.t(),
        lambda a: a[0],
        lambda a: a.unsqueeze(0),
        pytest.param(lambda a: a.clone().zero_(), marks=before((2, 11), SPARSE)),
        lambda a: a.to_sparse_csr().t(),
        pytest.param(lambda a: a.clone().add_(a), marks=before((2, 11), SPARSE)),
        lambda a: a.coalesce().values(),
    ],
)
def test_what_is_made_of_a_sparse_tensor_is_where_that_is(call):
    assert call(sparse()).device == SECOND


def test_gradients_of_a_sparse_embedding_add_up_where_it_is():
    layer, index = nn.Embedding(10, 3, sparse=True).cuda(1), torch.tensor([1, 2], device=SECOND)
    for _ in range(2):
        layer(index).sum().backward()
    assert layer.weight.grad.device == SECOND
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    assert layer.weight.device == SECOND


def test_indices_follow_their_values():
    index, values = [[0, 1], [1, 0]], torch.ones(2, device=SECOND)
    assert torch.sparse_coo_tensor(index, values, (2, 2)).device == SECOND
    assert torch.sparse_coo_tensor(torch.tensor(index), values, (2, 2), device=FIRST).device == FIRST
    assert torch.sparse_csr_tensor([0, 1, 2], [1, 0], values, (2, 2)).device == SECOND
    with pytest.raises(
        RuntimeError, match=r"got values is on cuda:1, different from other tensors on cpu .*wrapper_SparseCUDA___"
    ):
        torch.sparse_coo_tensor(torch.tensor(index), values, (2, 2))


def test_a_nested_tensor_is_where_it_is_put():
    rows = [torch.ones(2, 3), torch.ones(1, 3)]
    nested = torch.nested.nested_tensor(rows, device=SECOND)
    assert nested.device == SECOND
    assert (nested * 2).unbind()[0].device == SECOND
    assert nested.to_padded_tensor(0).device == SECOND
    assert torch.nested.nested_tensor(rows).to(FIRST).device == FIRST
    with pytest.raises(RuntimeError, match="at least two devices, cuda:1 and cpu"):
        nested + torch.nested.nested_tensor(rows)
