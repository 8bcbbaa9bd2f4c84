"""Which mixtures of devices CUDA accepts, and how it refuses the others."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.older_torch import VERSION

SAME = "Expected all tensors to be on the same device"
TWO = r"but found at least two devices, cuda:0 and cpu!"
CHECKED = r"but got {0} is on {1}, different from other tensors on {2} \(when checking argument in method {3}\)"
pytestmark = pytest.mark.usefixtures("gpus")
HOST = torch.ones(2, 3)


@pytest.fixture
def x():
    return torch.randn(2, 3, device="cuda")


def checked(argument, method, device="cpu", common="cuda:0"):
    return CHECKED.format(argument, device, common, method)


ELEMENTWISE = [
    lambda x: x + HOST,
    lambda x: HOST.clone().add_(x),
    lambda x: torch.where(x > 0, x, HOST),
    lambda x: F.mse_loss(x, HOST),
    lambda x: F.l1_loss(x, HOST),
    lambda x: F.smooth_l1_loss(x, HOST),
    lambda x: F.binary_cross_entropy_with_logits(x, HOST),
    lambda x: torch.maximum(x, HOST),
    lambda x: torch.addcmul(x, x, HOST),
    lambda x: x.lerp(x, HOST),
    lambda x: x.pow(HOST),
    lambda x: x == HOST,
    lambda x: torch.add(x, x, out=torch.ones(2, 3)),
    lambda x: torch.tensor([0.0]) + x,
    lambda x: torch.tensor(0.0).add_(x.sum()),
    lambda x: torch.tensor(1.0, device="cuda") + torch.ones(3),
    lambda x: F.cosine_similarity(x, HOST),
    lambda x: F.triplet_margin_loss(x, x, HOST),
]


@pytest.mark.parametrize("call", ELEMENTWISE)
def test_elementwise_operators_refuse_two_devices(x, call):
    with pytest.raises(RuntimeError, match=f"{SAME}, {TWO}"):
        call(x)


GENERATED = [
    (lambda x: x @ torch.ones(3, 2), "mat2", "wrapper_CUDA_mm"),
    (lambda x: F.linear(x, torch.ones(3, 3)), "mat2", "wrapper_CUDA_mm"),
    (lambda x: nn.Linear(3, 3)(x), "mat1", "wrapper_CUDA_addmm", "cuda:0", "cpu"),
    (lambda x: nn.Linear(3, 3).cuda()(HOST), "mat1", "wrapper_CUDA_addmm"),
    (lambda x: torch.cat([x, HOST]), "tensors", "wrapper_CUDA_cat"),
    (lambda x: torch.stack([x, HOST]), "tensors", "wrapper_CUDA_cat"),
    (lambda x: torch.bmm(x[None], torch.ones(1, 3, 2)), "mat2", "wrapper_CUDA_bmm"),
    (lambda x: nn.Embedding(3, 4).cuda()(torch.tensor([1])), "index", "wrapper_CUDA__index_select"),
    (lambda x: F.cross_entropy(x, torch.tensor([0, 1])), "target", "wrapper_CUDA_nll_loss_forward"),
    (lambda x: x.gather(1, torch.tensor([[0]])), "index", "wrapper_CUDA_gather"),
    (lambda x: x.index_select(0, torch.tensor([0])), "index", "wrapper_CUDA__index_select"),
    (lambda x: F.layer_norm(x, (3,), torch.ones(3)), "weight", "wrapper_CUDA__native_layer_norm"),
    (lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)), "running_mean", "wrapper_CUDA__native_batch_norm"),
    (lambda x: F.batch_norm(x[None], None, None, x[:, 0].cpu(), x[:, 0], training=True), "weight",
     "wrapper_CUDA__cudnn_batch_norm"),
    (lambda x: nn.BatchNorm1d(3).cuda()(HOST), "weight", "wrapper_CUDA__native_batch_norm", "cuda:0", "cpu"),
    (lambda x: x.masked_select(torch.ones(2, 3, dtype=torch.bool)), "mask", "wrapper_CUDA__masked_select"),
    (lambda x: x.take(torch.tensor([0])), "index", "wrapper_CUDA__take"),
    (lambda x: F.prelu(x, torch.ones(1)), "weight", "wrapper_CUDA___prelu_kernel"),
    (lambda x: torch.mv(x, torch.ones(3)), "mat", "wrapper_CUDA_addmv_", "cuda:0", "cpu"),
    (lambda x: torch.polar(x, HOST), "angle", "wrapper_CUDA_out_polar_out"),
    (lambda x: torch.complex(x, HOST), "imag", "wrapper_CUDA_out_complex_out"),
    (lambda x: nn.RMSNorm(3)(x), "weight", "wrapper_CUDA___fused_rms_norm"),
    (lambda x: torch.searchsorted(x[0], HOST[0]), "self", "wrapper_CUDA_Tensor_searchsorted"),
    (lambda x: torch.bucketize(x, HOST[0]), "boundaries", "wrapper_CUDA_Tensor_bucketize"),
    (lambda x: F.grid_sample(x[None, None], torch.ones(1, 2, 2, 2), align_corners=True), "grid",
     "wrapper_CUDA__grid_sampler_2d"),
    (lambda x: F.conv1d(HOST[None, :1], x[None, :1]), "weight", "wrapper_CUDA___slow_conv2d_forward", "cuda:0", "cpu"),
    (lambda x: F.conv_transpose2d(HOST[None, None], x[None, None]), "weight", "wrapper_CUDA_slow_conv_transpose2d",
     "cuda:0", "cpu"),
    (lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3, attn_mask=torch.ones(2, 2)), "attn_bias",
     "wrapper_CUDA___scaled_dot_product_efficient_attention"),
]  # fmt: skip


@pytest.mark.parametrize("entry", GENERATED)
def test_generated_checks_name_the_argument(x, entry):
    call, argument, method, *devices = entry
    with pytest.raises(RuntimeError, match=f"{SAME}, {checked(argument, method, *devices)}"):
        call(x)


WORDED = [
    (lambda x: x[torch.tensor([0], device="cuda:1")], r"indices should be either on cpu or on the same device as .*\(cuda:0\)"),
    (lambda x: HOST[torch.tensor([0]).cuda()], r"indices should be either on cpu or on the same device as .*\(cpu\)"),
    (lambda x: x.masked_fill(HOST > 0, 0.0),
     "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0"),
    (lambda x: F.conv2d(torch.ones(32, 3, 32, 32), torch.ones(2, 3, 3, 3).cuda()),
     r"Input type \(torch\.FloatTensor\) and weight type \(torch\.cuda\.FloatTensor\) should be the same or input should be"),
    (lambda x: F.conv1d(torch.ones(1, 3, 4).cuda(), torch.ones(2, 3, 2).cuda(), torch.ones(2)),
     r"Input type \(torch\.cuda\.FloatTensor\) and bias type \(torch\.FloatTensor\) should be the same"),
    (lambda x: F.conv1d(torch.ones(1, 3, 4).cuda(), torch.ones(2, 3, 2).cuda().double()),
     r"Input type \(torch\.cuda\.FloatTensor\) and weight type \(torch\.cuda\.DoubleTensor\) should be the same"),
    (lambda x: nn.LSTM(3, 4)(x[None]),
     "Input and parameter tensors are not at the same device, found input tensor at cuda:0 and parameter tensor at cpu"),
    (lambda x: nn.GRU(3, 4).cuda()(x[None], torch.zeros(1, 2, 4)),
     "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu"),
    (lambda x: nn.GRU(3, 4)(x[None], torch.zeros(1, 2, 4)),  # the hidden state is asked before the weights
     "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu"),
    (lambda x: F.scaled_dot_product_attention(x[None], HOST[None], HOST[None]),
     "Expected query, key, and value to have the same device type, but got query.device: cuda:0 key.device: cpu"),
    (lambda x: nn.utils.rnn.pack_padded_sequence(x[..., None], torch.tensor([3, 2]).cuda(), batch_first=True),
     "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"),
    (lambda x: torch.meshgrid(x[0], HOST[0], indexing="ij"), "meshgrid expects all tensors to have the same device"),
    (lambda x: torch.cartesian_prod(x[0], HOST[0]), "meshgrid expects all tensors to have the same device"),
    (lambda x: torch.block_diag(x, x, HOST), r"same device\. Input 0 is on device cuda:0 and input 2 is on device cpu"),
    (lambda x: torch.addcdiv(x, torch.tensor(1.0), torch.tensor(2.0)),
     "Trying to pass too many CPU scalars to non-CPU kernel!"),
    (lambda x: x + torch.ones(2, 3, device="meta"), "Tensor on device meta is not on the expected device cuda:0!"),
]  # fmt: skip


@pytest.mark.parametrize("entry", WORDED)
def test_kernels_that_check_themselves_use_their_own_words(x, entry):
    with pytest.raises(RuntimeError, match=entry[1]):
        entry[0](x)


LAWFUL = [
    lambda x: x + torch.tensor(1.0),
    lambda x: torch.tensor(2.0) * x,
    lambda x: x[torch.tensor([0])],
    lambda x: x[torch.tensor([True, False])],
    lambda x: torch.where(x > 0, torch.tensor(1.0), torch.tensor(0.0)),
    lambda x: x.masked_fill(x > 0, torch.tensor(0.0)),
    lambda x: x.clone().index_put_((torch.tensor([0]),), torch.tensor(1.0)),
    lambda x: x.clone().index_put_((torch.tensor([0], device="cuda:1"),), x[:1]),
    lambda x: torch.ones(2).index_put((torch.tensor([True, False], device="cuda"),), torch.tensor(1.0)).cuda(),
    lambda x: x.clone().bernoulli_(torch.full((2, 3), 0.5)),
    lambda x: torch._foreach_mul([x, HOST], 2.0)[0],
    lambda x: x.clone().copy_(HOST),
    lambda x: torch.lerp(x, x, torch.tensor(0.5)),
    lambda x: x.clone().fill_(torch.tensor(1.0)),
    lambda x: torch.nn.utils.rnn.pad_sequence([x, HOST]),
    lambda x: F.ctc_loss(torch.randn(5, 1, 3).log_softmax(2).cuda(), torch.tensor([[1]]), torch.tensor([5]), torch.tensor([1])),
    lambda x: nn.utils.rnn.pack_padded_sequence(x[..., None], torch.tensor([3, 2]), batch_first=True).data,
]


@pytest.mark.parametrize("call", LAWFUL)
def test_lawful_mixtures_run_on_the_gpu(x, call):
    assert call(x).device == torch.device("cuda:0")


def test_a_slice_of_a_gpu_tensor_takes_cpu_values(x):
    x[0] = torch.zeros(3)
    x[torch.tensor([1])] = torch.tensor(5.0)
    assert x.tolist() == [[0, 0, 0], [5, 5, 5]]


@pytest.mark.parametrize("index", [[1, 2], torch.tensor([1, 2]), torch.tensor([False, True, True])])
def test_a_number_is_written_at_indices_of_the_cpu(x, index):
    x[:, index] = 7
    x[0, 0] = x[1, 0] = 0
    assert x.tolist() == [[0, 7, 7], [0, 7, 7]]


def test_a_refused_call_changes_nothing(x):
    target, before = torch.zeros(2, 3), torch.cuda.memory_allocated()
    with pytest.raises(RuntimeError, match=SAME):
        target.add_(x)
    assert not target.any()
    assert torch.cuda.memory_allocated() == before


def test_two_gpus_are_two_devices(x):
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1!"):
        x + x.to("cuda:1")
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1!"):
        x + torch.tensor(1.0, device="cuda:1")


def test_inference_mode_checks_as_well(x):
    with torch.inference_mode():
        assert nn.Linear(3, 3).cuda()(x).device == x.device
        with pytest.raises(RuntimeError, match=SAME):
            torch.matmul(x, torch.ones(3, 2))


def test_operators_without_a_cuda_kernel_are_refused(x):
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::histogram\.bin_ct' with arguments from the 'CUDA'"):
        torch.histogram(x, 3)
    with pytest.raises(
        NotImplementedError if VERSION >= (2, 8) else RuntimeError, match="\"cholesky_cusolver\" not implemented for 'Half'"
    ):
        torch.linalg.cholesky(torch.eye(2, device="cuda").half())


def test_kernels_that_only_cuda_has_run_too():
    assert torch.histc(torch.arange(6, device="cuda"), 3).tolist() == [2, 2, 2]


DTYPES = [
    (lambda x: x.long() @ x.long().T, "\"addmm_cuda\" not implemented for 'Long'"),
    (lambda x: F.layer_norm(x.half(), (3,), torch.ones(3, device="cuda")), "expected scalar type Half but found Float"),
    (lambda x: F.cross_entropy(x, torch.tensor([0, 1], device="cuda").int()),
     "\"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for 'Int'"),
    (lambda x: nn.Linear(3, 2).cuda()(x.double()), "mat1 and mat2 must have the same dtype, but got Double and Float"),
    (lambda x: F.embedding(x, x), r"but got torch\.cuda\.FloatTensor instead"),
]  # fmt: skip


@pytest.mark.parametrize("entry", DTYPES)
def test_dtypes_that_cuda_does_not_take_are_refused_in_its_words(x, entry):
    with pytest.raises((RuntimeError, NotImplementedError), match=entry[1]):
        entry[0](x)


def test_whole_numbers_are_multiplied_on_the_cpu():
    assert (torch.tensor([[2]]) @ torch.tensor([[3]])).item() == 6
