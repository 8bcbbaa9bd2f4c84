"""Short programs end on virtual GPUs as they did on an H100, whose answers are kept beside `tests/gpu`."""

import pytest

from tests.gpu import mixed_calls, surface_calls
from tests.gpu.places import VIRTUAL, ask
from tests.older_torch import VERSION, before

JIT = (
    "torch.jit.script(nn.Linear(2, 2).cuda())(o(1, 2)).device",
    "torch.jit.trace(nn.Linear(2, 2).cuda(), o(1, 2))(torch.ones(1, 2))",
    "b = io.BytesIO(); torch.jit.save(torch.jit.script(nn.Linear(2, 2).cuda()), b); b.seek(0); y = torch.jit.load(b)"
    ".weight.device",
)
SENSORS = (
    "torch.cuda.temperature().__class__",
    "torch.cuda.memory_usage().__class__",
    "torch.cuda.utilization() >= 0",
    "torch.cuda.power_draw().__class__",
    "torch.cuda.clock_rate().__class__",
)
OTHERWISE = {
    "torch.cuda.set_rng_state(torch.get_rng_state())": "random numbers are those of the CPU, and so are their states",
    "torch.cuda.get_rng_state().shape": "random numbers are those of the CPU, and so are their states",
    "g = torch.cuda.CUDAGraph(); x = o(2)": "virtual GPUs record no graphs",
    "torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(o(2))).device": "they hand no memory to other libraries",
    "np.from_dlpack(o(2))": "they hand no memory to other libraries",
    "o(4).view(2, 2).untyped_storage().data_ptr() == o(4).data_ptr()": "which memory is taken again is chance",
    "with torch.autocast('cpu'): y = nn.Linear(3, 3).cuda()(o(2, 3)).dtype": "autocast takes them for the CPU's",
    "torch.cuda.nccl.is_available([o(1)])": "NCCL is there by name alone",
    "torch.cuda.set_per_process_memory_fraction(0.5, 3)": "another error for a GPU that is not there",
    "torch.compile(lambda a, b: a + b, backend='eager')(o(2), torch.ones(2))": "dynamo passes programs on virtual GPUs by",
    **dict.fromkeys(("z(3) % 0", "z(3) // 0", "1 // z(2)", "torch.fmod(z(3), 0)"), "whole numbers are divided as on the CPU"),
    "torch.tensor_split(r(4), z(1))": "where it splits may be on a GPU",
    "x = o(2, 2, 3).requires_grad_(); torch.autograd.grad(nn.GRU(3, 3).cuda()(x)[0].sum(), x, create_graph=True)[0].norm()"
    ".backward()": "the kernel of the CPU has second derivatives",
    "torch._int_mm(z(8, 8).to(torch.int8), z(8, 8).to(torch.int8))": "the kernel of the CPU takes more",
    **dict.fromkeys(JIT, "TorchScript is refused, and what comes from its files is on the CPU"),
    "torch.linalg.lstsq(r(4, 2), o(4, 1), driver='gelsd')": "the kernel of the CPU takes more",
    "torch.linalg.svd(r(3, 3), driver='nonsense')": "the kernel of the CPU takes more",
    **dict.fromkeys(SENSORS, "nothing is measured: torch asks for NVIDIA's library"),
    "next(iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(o(4)), num_workers=1)))": "a worker that was forked"
    " is told so where it asks for a GPU",
}
"""Why a program ends otherwise, in whether it raises, what, or what it gives; docs/explanation/limits.md says so too."""
MEANT_FOR_CPU = "the kernel of the CPU names its own tensors"
FIRST_SEEN = "another operator of the function is the first to see two devices"
SINCE = "torch has other words since 2.11"
GENERAL = "rare kernels have no words of their own"
IN_OTHER_WORDS = {
    "torch.randn(2, device=gpu, dtype=torch.long)": MEANT_FOR_CPU,
    "o(2, 2).expand(3)": MEANT_FOR_CPU,
    "x = o(3); x[o(3) > 0] = [1.0, 2.0, 3.0]": MEANT_FOR_CPU,
    "x = o(3); x[o(3) > 0] = np.ones(3)": MEANT_FOR_CPU,
    "nn.CosineSimilarity()(o(1, 2), torch.ones(1, 2))": FIRST_SEEN,
    "F.cosine_similarity(o(2, 2), torch.ones(2, 2))": FIRST_SEEN,
    "nn.GRUCell(3, 4).cuda()(o(2, 3), torch.zeros(2, 4))": FIRST_SEEN,
    "nn.LSTMCell(3, 4).cuda()(o(2, 3), (torch.zeros(2, 4), torch.zeros(2, 4)))": FIRST_SEEN,
    "torch.nested.as_nested_tensor([o(2), torch.ones(3)])": FIRST_SEEN,
    "torch.eye(2, device=gpu).to_sparse() @ torch.ones(2, 2)": SINCE,
    "torch.sparse.mm(torch.eye(2).to_sparse(), o(2, 2))": SINCE,
    "torch.autograd.grad(o(2).requires_grad_().sum(), torch.ones(2, requires_grad=True))": SINCE,
    "np.sum(o(2))": SINCE,
    "torch.block_diag(o(2, 2), torch.ones(2, 2))": GENERAL,
    "F.conv1d(torch.ones(1, 1, 3), o(1, 1, 2))": GENERAL,
    "nn.Conv1d(1, 1, 1).cuda()(torch.ones(1, 1, 2))": GENERAL,
    "nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2))": GENERAL,
    "nn.ConvTranspose1d(1, 1, 2).cuda()(torch.ones(1, 1, 3))": GENERAL,
    "nn.ConvTranspose2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2))": GENERAL,
    "nn.Bilinear(2, 2, 2).cuda()(torch.ones(1, 2), o(1, 2))": GENERAL,
    "nn.Bilinear(2, 2, 2).cuda()(o(1, 2), torch.ones(1, 2))": GENERAL,
    "nn.BatchNorm2d(1)(o(2, 1, 2, 2))": GENERAL,
    "torch.FloatTensor(o(2))": "constructors of old have no words of their own",
}
"""Why an error is the same with another text."""


@pytest.mark.process
@pytest.mark.usefixtures("virtual_gpus")
@before((2, 11), "the answers are of torch 2.11")
def test_short_programs_end_as_on_an_h100():
    card, virtual = surface_calls.read_answers(), ask(VIRTUAL, surface_calls.answer_both)
    found = mixed_calls.compare(card, virtual)
    assert card.keys() == virtual.keys()
    assert {call for kind in ("outcome", "devices", "gives", "type") for call in found[kind]} == OTHERWISE.keys()
    assert VERSION < (2, 13) or found["text"].keys() == IN_OTHER_WORDS.keys()
