"""Attention with dropout takes the memory of a fused kernel, and gives the numbers and gradients of the CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import devwidget
from devwidget.gpus import composites

SHAPE = 2, 4, 64, 16


def attend(device, mask=None, **options):
    torch.manual_seed(0)
    given = [torch.randn(SHAPE).to(device).requires_grad_() for _ in range(3)]
    torch.manual_seed(1)
    mask = None if mask is None else mask.to(device)
    out = functional.scaled_dot_product_attention(*given, attn_mask=mask, dropout_p=0.3, **options)
    out.sin().sum().backward()
    return [out, *(each.grad for each in given)], torch.get_rng_state()


@pytest.mark.parametrize(
    ("mask", "options"),
    [(None, {"is_causal": True}), (torch.ones(64, 64).tril().bool(), {"scale": 0.5}), (torch.ones(64, 64).tril(), {})],
    ids=["causal", "mask", "bias"],
)
def test_numbers_are_those_of_the_cpu(mask, options):
    plain, after = attend("cpu", mask, **options)
    with devwidget.simulate(gpus=1):
        ours, ours_after = attend("cuda", mask, **options)
        assert {str(each.device) for each in ours} == {"cuda:0"}
        assert all(map(torch.equal, [each.cpu() for each in ours], plain))
    assert torch.equal(after, ours_after)


@pytest.mark.parametrize("compute", [True, False])
@pytest.mark.parametrize("mask", [None, torch.ones(64, 64).tril().bool()])
def test_no_scores_are_kept(compute, mask):
    with devwidget.simulate(gpus=1, compute=compute):
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_replicas_that_overlap_leave_the_switch_of_flash_attention_as_it_was(dtype):
    first = composites._choose_attention(torch.ones(1, dtype=torch.float64), False)
    second = composites._choose_attention(torch.ones(1, dtype=dtype), False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert torch.backends.cuda.flash_sdp_enabled()
