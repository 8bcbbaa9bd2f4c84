"""Kernels that GPUs have and the CPU lacks, and those that GPUs lack."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_numbers_in_half_precision_are_computed_where_gpus_do_and_refused_where_they_do_not():
    x = torch.full((2, 2), 1 + 1j, dtype=torch.complex32, device=SECOND)
    assert (x.nansum().item(), x.cos().dtype) == (4 + 4j, torch.complex32)
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexHalf'"):
        x @ x


def test_an_operator_that_only_gpus_have_is_refused_by_name():
    q = torch.ones(1, 2, 3, 8, device=SECOND)
    with pytest.raises(NotImplementedError, match="no kernel for `aten::_efficient_attention_forward`"):
        torch.ops.aten._efficient_attention_forward(q, q, q, None, None, None, None, None, 0.0, 0)


def test_fused_attention_alone_gives_what_the_cpu_gives():
    q = torch.rand(1, 2, 3, 8)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        found = torch.nn.functional.scaled_dot_product_attention(*[q.to(SECOND)] * 3)
        assert not torch.backends.cuda.math_sdp_enabled()
    assert found.device == SECOND
    torch.testing.assert_close(found.cpu(), torch.nn.functional.scaled_dot_product_attention(q, q, q))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        torch.nn.functional.scaled_dot_product_attention(*[q.to(SECOND)] * 3)


def test_a_gradient_of_zeros_is_where_its_tensor_is():
    x, y = (torch.ones(2, device=SECOND, requires_grad=True) for _ in range(2))
    assert torch.autograd.grad(torch.copysign(x, y).sum(), y)[0].device == SECOND
    torch.copysign(x, y).sum().backward()
    assert y.grad.device == SECOND
