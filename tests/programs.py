"""Small programs across torch's less used surface: each returns numbers, which must not depend on who watches."""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

TORCH_WARNS = (
    r".*torch\.jit\.", r".*treespec", r".*nested tensors is in prototype", r"flex_attention called without",
    r"Attempted to insert a get_attr Node",
)  # fmt: skip
"""What torch says of itself, watched or not."""
Program = Callable[[torch.device], Any]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    """Add a program; it is given the device to work on."""
    PROGRAMS[run.__name__] = run
    return run


def numbers(results: Any) -> list[Any]:
    """What a program returned, on the CPU and without history."""
    leaves = _pytree.tree_leaves(results)
    return [leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def run(name: str, device: str) -> list[Any]:
    """The numbers of one program."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        for message in TORCH_WARNS:
            warnings.filterwarnings("ignore", message=message)
        results = PROGRAMS[name](torch.device(device))
    for leaf in _pytree.tree_leaves(results):
        assert not isinstance(leaf, torch.Tensor) or leaf.device.type == torch.device(device).type, (name, leaf.device)
    return numbers(results)


@functools.cache
def plain(name: str) -> list[Any]:
    """The numbers of one program on the CPU that nobody watches; asked for before anything watches."""
    return run(name, "cpu")


def equal(left: list[Any], right: list[Any]) -> bool:
    """Bit for bit; NaN equals NaN."""
    return len(left) == len(right) and all(_same(one, two) for one, two in zip(left, right, strict=True))


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(torch.nan_to_num(one), torch.nan_to_num(two))
    return bool(one == two)


def net(device: torch.device) -> nn.Module:
    """A small network with weights that depend on the seed alone."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).to(device)


def batch(device: torch.device, *shape: int) -> torch.Tensor:
    """Random numbers that depend on the seed alone."""
    return torch.randn(shape or (3, 4)).to(device)


def trained(model: nn.Module, loss: torch.Tensor) -> list[Any]:
    """The loss and the gradients that it gives."""
    loss.backward()
    return [loss, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


# -- higher-order operators


@program
def cond_backward(device):
    x = batch(device).requires_grad_()
    out = torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))
    out.sum().backward()
    return out, x.grad


@program
def while_loop_forward(device):
    from torch._higher_order_ops import while_loop

    x = batch(device)
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.zeros((), dtype=torch.int64, device=device), x))


@program
def scan_backward(device):
    from torch._higher_order_ops import scan

    x = batch(device, 5, 3).requires_grad_()
    carry, out = scan(lambda carry, x: (carry + x, carry * x), torch.ones(3, device=device, requires_grad=True), x)
    (carry.sum() + out.sum()).backward()
    return carry, out, x.grad


@program
def flex_attention_masked(device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (batch(device, 1, 2, 16, 8) for _ in range(3))
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 2, 16, 16, device=device.type)
    bias = batch(device, 16)
    return flex_attention(q, k, v, score_mod=lambda s, b, h, q, k: s + bias[k], block_mask=mask)


@program
def invoke_subgraph(device):
    from torch._higher_order_ops.invoke_subgraph import mark_compile_region

    region = mark_compile_region(lambda x: x.sin() + 1)
    x = batch(device).requires_grad_()
    out = region(region(x))
    out.sum().backward()
    return out, x.grad


# -- functorch


@program
def vmap_in_loss(device):
    model = net(device)
    out = model(batch(device))
    return trained(model, torch.vmap(lambda row: (row - row.mean()).pow(2).sum())(out).mean())


@program
def vmap_randomness(device):
    return torch.vmap(lambda x: F.dropout(x, 0.5), randomness="different")(batch(device))


@program
def per_sample_gradients(device):
    model = net(device)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(model, weights, (x.unsqueeze(0),)).pow(2).sum()

    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, batch(device))


@program
def jacrev_in_loss(device):
    model = net(device)
    penalty = torch.func.jacrev(lambda x: model(x).sum())(batch(device, 4)).pow(2).sum()
    return trained(model, penalty)[:2]


@program
def functional_call(device):
    model = net(device)
    weights = {name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()}
    torch.func.functional_call(model, weights, (batch(device),)).sum().backward()
    return [weight.grad for weight in weights.values()]


@program
def batched_gradients(device):
    x = batch(device, 4).requires_grad_()
    out = x.sin()
    return torch.autograd.grad(out, x, torch.eye(4).to(device), is_grads_batched=True)


@program
def forward_mode(device):
    import torch.autograd.forward_ad as fwd

    with fwd.dual_level():
        dual = fwd.make_dual(batch(device), batch(device))
        out = fwd.unpack_dual(dual.sin() * 2)
        return out.primal, out.tangent


@program
def custom_function_under_vmap(device):
    class Square(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    return torch.vmap(torch.func.grad(lambda x: Square.apply(x).sum()))(batch(device))


# -- checkpointing


def _checkpointed(device, **options):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4)).to(device)
    x = batch(device).requires_grad_()
    return [*trained(model, checkpoint(model, x, **options).sum()), x.grad]


@program
def checkpoint_reentrant(device):
    return _checkpointed(device, use_reentrant=True)


@program
def checkpoint_plain(device):
    return _checkpointed(device, use_reentrant=False)


@program
def checkpoint_selective(device):
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE

    return _checkpointed(device, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))


@program
def saved_tensor_hooks(device):
    model = net(device)
    with torch.autograd.graph.save_on_cpu():
        loss = model(batch(device)).sum()
    return trained(model, loss)


# -- nested and other layouts


@program
def nested_jagged_backward(device):
    parts = [batch(device, 2, 4).requires_grad_(), batch(device, 3, 4).requires_grad_()]
    layer = nn.Linear(4, 5).to(device)
    nested = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    layer(nested).values().sum().backward()
    return [part.grad for part in parts], layer.weight.grad


@program
def nested_jagged_moved(device):
    host = torch.device("cpu")
    nested = torch.nested.nested_tensor([batch(host, 2, 4), batch(host, 3, 4)], layout=torch.jagged)
    return nested.to(device).sin().values(), list(nested.to(device).unbind())


@program
def sparse_product(device):
    weight = batch(device, 4, 4).relu().to_sparse().requires_grad_()
    torch.sparse.mm(weight, batch(device, 4, 2)).sum().backward()
    return weight.grad.to_dense()


@program
def complex_numbers(device):
    x = batch(device, 4, 2).requires_grad_()
    out = torch.fft.fft(torch.view_as_complex(x)).abs().sum()
    out.backward()
    return out, x.grad


# -- subclasses and modes of the user


class Wrapper(torch.Tensor):
    """Holds a tensor of the same shape and device, as TensorDict, DTensor and quantized tensors do."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = _pytree.tree_map_only(Wrapper, lambda wrapper: wrapper.inner, (args, kwargs or {}))
        return _pytree.tree_map_only(torch.Tensor, Wrapper, func(*args, **kwargs))


@program
def wrapper_subclass_backward(device):
    wrapped = Wrapper(batch(device)).requires_grad_()
    (wrapped.sin() * 2).sum().backward()
    return wrapped.grad.inner


@program
def wrapper_subclass_moved(device):
    wrapped = Wrapper(batch(torch.device("cpu"))).to(device)
    assert wrapped.device.type == device.type
    return wrapped.inner


@program
def user_dispatch_mode(device):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counter.seen += 1
            return func(*args, **(kwargs or {}))

    model, x = net(device), batch(device)
    with Counter():
        out = model(x)
    return out, Counter.seen


@program
def flop_counter(device):
    from torch.utils.flop_counter import FlopCounterMode

    model, x = net(device), batch(device)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return counter.get_total_flops()


# -- compiled, exported, traced, scripted


@program
def compile_aot_eager(device):
    torch._dynamo.reset()
    model = net(device)
    return trained(model, torch.compile(model, backend="aot_eager")(batch(device)).sum())


@program
def compile_function(device):
    torch._dynamo.reset()

    @torch.compile(backend="eager", fullgraph=True, dynamic=True)
    def f(x):
        return x.sin() + x.shape[0]

    return f(batch(device)), f(batch(device, 5, 4))


@program
def export_trained(device):
    exported = torch.export.export(net(device), (batch(device),))
    model = exported.module()
    return trained(model, model(batch(device)).sum())


@program
def export_with_factory(device):
    class Mask(nn.Module):
        def forward(self, x):
            return x * torch.tril(torch.ones(3, 4, device=x.device)) + torch.arange(4, device=x.device)

    x = batch(device)
    return torch.export.export(Mask(), (x,)).module()(x)


@program
def make_fx_symbolic(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    x = batch(device)
    return make_fx(lambda x: (x.sin() + torch.ones(4, device=x.device)).sum(0), tracing_mode="symbolic")(x)(x)


@program
def aot_function(device):
    from functorch.compile import aot_function, nop

    x = batch(device).requires_grad_()
    out = aot_function(lambda x: x.sin() * 2, nop)(x)
    out.sum().backward()
    return out, x.grad


@program
def fake_tensors(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    model, x = net(device), batch(device)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(next(iter(model.parameters())))
        out = mode.from_tensor(x) @ fake.T
        made = torch.ones(2, device=device)
    assert out.device.type == fake.device.type == made.device.type == device.type
    return tuple(out.shape), fake.requires_grad, out.requires_grad


@program
def meta_twin(device):
    model = copy.deepcopy(net(device)).to("meta")
    model = model.to_empty(device=device)
    return [tuple(parameter.shape) for parameter in model.parameters()], next(model.parameters()).device.type == device.type


# -- threads, inference, devices


@program
def single_thread(device):
    model, x, results = net(device), batch(device), []
    thread = threading.Thread(target=lambda: results.append(model(x)))
    thread.start()
    thread.join()
    return results


@program
def inference_trained_beside(device):
    with torch.inference_mode():
        frozen = net(device)
    model, x = net(device), batch(device)
    with torch.inference_mode():
        seen = frozen(x) + model(x)
    return [seen.clone(), *trained(model, model(x).sum())]


@program
def freed_storage(device):
    model, x = net(device), batch(device)
    model.shard = torch.ones(8, device=device)
    model.shard.untyped_storage().resize_(0)
    out = trained(model, model(x).sum())
    model.shard.untyped_storage().resize_(32)
    return [*out, model.shard.fill_(2)]


@program
def sub_byte_attributes(device):
    model, x = net(device), batch(device)
    model.packed = torch.zeros(4, dtype=torch.uint8, device=device).view(torch.bits8)
    model.few = torch.empty(4, dtype=torch.uint4, device=device)
    return trained(model, model(x).sum())


@program
def expanded_to_a_trillion(device):
    model, x = net(device), batch(device)
    model.register_buffer("huge", torch.ones(1, device=device).expand(10**12), persistent=False)
    return trained(model, model(x).sum() + model.huge[:3].sum())


@program
def walks_overridden(device):
    class Sharded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).to(device)

        def modules(self):
            raise RuntimeError("gathered at the first forward")

        parameters = named_parameters = named_modules = buffers = named_buffers = children = modules

        def forward(self, x):
            return self.inner(x)

    torch.manual_seed(0)
    model = Sharded()
    model(batch(device)).sum().backward()
    optimizer = torch.optim.SGD([model.inner[0].weight, model.inner[0].bias], lr=0.1)
    optimizer.step()
    return [model.inner[0].weight, model.inner[0].weight.grad]


@program
def loaders_of_every_kind(device):
    model, x = net(device), batch(device)
    kinds = (
        iter,
        lambda rows: map(torch.clone, rows),
        lambda rows: (row for row in rows),
        lambda rows: zip(rows, rows, strict=True),
    )
    return [model(rows[0] if type(rows) is tuple else rows) for kind in kinds for rows in kind([x, x + 1])]


@program
def pool_with_an_initializer(device):
    model, x, here = net(device), batch(device), threading.local()

    def begin(scale):
        here.scale = torch.full((4,), scale, device=device)

    with ThreadPoolExecutor(1, initializer=begin, initargs=(2.0,)) as pool:
        return pool.submit(lambda: model(x * here.scale)).result()


@program
def device_context(device):
    with device:
        layer = nn.Linear(4, 4)
        x = torch.randn(3, 4)
    return layer.weight.device.type == device.type, x.device.type == device.type


@program
def lbfgs(device):
    model, x = net(device), batch(device)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return list(model.parameters())


@program
def autocast(device):
    model, x = net(device), batch(device)
    with torch.autocast(device.type, torch.bfloat16):
        loss = model(x).float().sum()
    return trained(model, loss)


@program
def custom_operator(device):
    @torch.library.custom_op("devwidget_programs::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_autograd(lambda ctx, gradient: gradient * 2)
    x = batch(device).requires_grad_()
    double(x).sum().backward()
    return x.grad


@program
def profiled(device):
    model, x = net(device), batch(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        return trained(model, model(x).sum())
