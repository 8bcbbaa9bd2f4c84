"""Attention with dropout takes the memory of a fused kernel where tensors have no values."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import devwidget

SHAPE = 2, 4, 64, 16


@pytest.mark.parametrize("mask", [None, torch.ones(64, 64).tril().bool()])
def test_no_scores_are_kept(mask):
    with devwidget.simulate(gpus=1, compute=False):
        given = [torch.randn(SHAPE, device="cuda", requires_grad=True) for _ in range(3)]
        mask = None if mask is None else mask.cuda()
        before = torch.cuda.memory_allocated()
        out = functional.scaled_dot_product_attention(*given, attn_mask=mask, dropout_p=0.3)
        sums, numbers = 2 * 4 * 64 * 4, 0 if mask is None else mask.numel() * 4
        assert torch.cuda.memory_allocated() - before == out.nbytes + sums + numbers


def test_scores_that_are_kept_are_kept_once_beside_booleans():
    """A bias that is learned, as T5 has it."""
    with devwidget.simulate(gpus=1, compute=False):
        given = [torch.randn(SHAPE, device="cuda", requires_grad=True) for _ in range(3)]
        bias = torch.randn(1, 4, 64, 64, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        out = functional.scaled_dot_product_attention(*given, attn_mask=bias, dropout_p=0.3)
        scores = 2 * 4 * 64 * 64
        kept = torch.cuda.memory_allocated() - before
        assert kept == out.nbytes + 2 * given[0].nbytes + 2 * scores * 4 + scores


def test_dropout_keeps_booleans():
    with devwidget.simulate(gpus=1):
        x = torch.rand(1 << 12, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        y = nn.Dropout(0.1)(x)
        assert torch.cuda.memory_allocated() - before == y.nbytes + x.numel()
        assert type(y.grad_fn).__name__ == "NativeDropoutBackward0"
