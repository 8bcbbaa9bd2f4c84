"""Models that change something in a step, one kind of change each, by the name of what they change."""

from __future__ import annotations

import array
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn


class Changing(nn.Module):
    """Runs `change(self, x)` in its forward."""

    def __init__(self, change: Callable[[Any, torch.Tensor], Any], **attributes: Any) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        for name, value in attributes.items():
            setattr(self, name, value)
        self._change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.lin(x)
        self._change(self, x)
        return out if out.dtype is torch.float32 else out.float()


class Helper:
    """A plain object of the user's."""

    def __init__(self) -> None:
        self.count = 0
        self.seen = [torch.zeros(3)]


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 0


class Other(Changing):
    pass


class Calls(dict):
    """A dict whose own methods must not run because it is kept."""

    def items(self):
        raise AssertionError

    values = keys = __iter__ = __len__ = items


def buffered(change: Callable[[Any, torch.Tensor], Any], buffer: torch.Tensor) -> Changing:
    model = Changing(change)
    model.register_buffer("seen", buffer)
    return model


def _resize(m, x):
    m.seen.data = torch.cat([m.seen, x])


def _write_many(m, x):
    m.seen[1:3] += 1
    m.seen.t()[2].mul_(3)


def _hook(m, x):
    m.lin.weight.register_hook(lambda grad: grad * 2)
    m.lin.weight.register_post_accumulate_grad_hook(lambda p: None)


def _deep(m, x):
    m.log["a"]["b"].append(x)
    m.log["a"]["c"][0][1].add(5)
    m.log["new"] = 1


def _both(m, x):
    m.helper.count += 1
    m.helper.seen[0].add_(1)
    m.helper.seen.append(x)
    m.helper.extra = 1


def _slots(m, x):
    m.helper.count += 1
    m.helper.unset = 1


def _counts(m, x):
    m.counter["x"] += 1
    m.default["y"].append(1)
    m.ordered.move_to_end("a")
    m.queue.append(3)
    m.members.add(4)
    m.raw[0] = 7
    m.raw.append(9)
    m.numbers[1] = 2.5


def _draw(m, x):
    torch.rand(1, generator=m.torch_rng)
    m.python_rng.random()
    m.numpy_rng.random()
    m.old_rng.rand()


def _switch(m, x):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
    with torch.backends.__allow_nonbracketed_mutation():  # torch.testing, once imported, forbids it for ever
        torch.backends.mkldnn.enabled = False
    torch.set_autocast_enabled("cpu", True)
    torch.use_deterministic_algorithms(True)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cuda.enable_flash_sdp(False)


def _thread(m, x):
    worker = threading.Thread(target=lambda: m.seen.add_(1))
    worker.start()
    worker.join()


def _class(m, x):
    m.__class__ = Other


def _retie(m, x):
    m.head.weight = nn.Parameter(m.lin.weight.detach().clone())


def _inference(m, x):
    m.mode = torch.inference_mode()
    m.mode.__enter__()


def _set(m, x):
    m.seen.set_(torch.ones(2))


def _unbuffer(m, x):
    del m.seen
    m.seen = nn.Parameter(torch.ones(3))


def _reclose(counter=0):
    def change(m, x):
        nonlocal counter
        counter += 1

    change.calls = [counter]
    return change


def _tied():
    model = Changing(_retie, head=nn.Linear(4, 4, bias=False))
    model.head.weight = model.lin.weight
    return model


def _attribute_of_parameter(m, x):
    m.lin.weight.times = getattr(m.lin.weight, "times", 0) + 1
    m.lin.bias.times += 1


def _with_attribute():
    model = Changing(_attribute_of_parameter)
    model.lin.bias.times = 3
    return model


def _inference_tensor():
    with torch.inference_mode():
        seen = torch.ones(3)
    return Changing(_in_inference, seen=seen)


def _in_inference(m, x):
    with torch.inference_mode():
        m.seen.add_(1)


def _frozen(m, x):
    m.lin.bias.requires_grad_(False)


def _graph(m, x):
    m.seen.add_(m.lin.weight.sum())


def _half(m, x):
    m.other.half()
    m.lin.weight.data = m.lin.weight.data.half().float()


def _hooks(m, x):
    m.lin.register_forward_hook(lambda *args: None)
    m.register_full_backward_hook(lambda *args: None)


def _grads(m, x):
    m.lin.weight.grad = torch.ones(4, 4)
    m.other.weight.grad.add_(1)
    m.other.bias.grad = None


def _with_gradients():
    model = Changing(_grads, other=nn.Linear(4, 4))
    model.other(torch.ones(1, 4)).sum().backward()
    return model


def _input(m, x):
    x.mul_(2)


def _class_count(m, x):
    type(m).count = getattr(type(m), "count", 0) + 1
    type(m).shared.append(1)


class Counted(Changing):
    count = 0
    shared: list[int] = []  # noqa: RUF012


def _device(m, x):
    m.other.to("meta")
    m.third.to(torch.float64)


ROWS: dict[str, Callable[[], nn.Module]] = {
    "buffer that grows through .data": lambda: buffered(_resize, torch.zeros(1, 4)),
    "buffer resized": lambda: buffered(lambda m, x: m.seen.resize_(8, 4).fill_(3), torch.zeros(2, 4)),
    "buffer set to another storage": lambda: buffered(_set, torch.zeros(3)),
    "buffer transposed in place": lambda: buffered(lambda m, x: m.seen.t_(), torch.rand(2, 5)),
    "buffer written in parts": lambda: buffered(_write_many, torch.rand(300, 400)),
    "large buffer written in many parts": lambda: buffered(
        lambda m, x: [m.seen[i].add_(1) for i in range(0, 200, 2)], torch.rand(300, 400)
    ),
    "buffer that becomes a parameter": lambda: buffered(_unbuffer, torch.ones(3)),
    "buffer that becomes part of a graph": lambda: buffered(_graph, torch.ones(3)),
    "freed storage filled": lambda: buffered(_fill_freed, _freed()),
    "small storage freed": lambda: buffered(lambda m, x: m.seen.untyped_storage().resize_(0), torch.ones(3)),
    "expanded tensor": lambda: Changing(lambda m, x: m.base.add_(1), base=_base(), wide=_base().expand(10**12)),
    "strides that overlap": lambda: Changing(lambda m, x: m.base.add_(1), base=torch.rand(6).unfold(0, 3, 1)),
    "sparse COO values": lambda: Changing(lambda m, x: m.seen.mul_(2), seen=torch.eye(3).to_sparse().coalesce()),
    "sparse COO entries": lambda: Changing(
        lambda m, x: m.seen.add_(torch.ones(3, 3).to_sparse()), seen=torch.eye(3).to_sparse()
    ),
    "sparse CSR": lambda: Changing(lambda m, x: m.seen.values().mul_(2), seen=torch.eye(3).to_sparse_csr()),
    "strided nested": lambda: Changing(lambda m, x: m.seen.mul_(2), seen=_nested(torch.strided)),
    "jagged nested": lambda: Changing(lambda m, x: m.seen._values.mul_(2), seen=_nested(torch.jagged)),
    "quantized": lambda: Changing(
        lambda m, x: m.seen.fill_(0.5), seen=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    ),
    "complex and bool": lambda: Changing(
        lambda m, x: (m.seen.mul_(1j), m.flags.logical_not_()),
        seen=torch.ones(3, dtype=torch.complex64), flags=torch.ones(2).bool(),
    ),
    "NaN": lambda: buffered(lambda m, x: m.seen.zero_(), torch.full((3,), float("nan"))),
    "meta": lambda: Changing(lambda m, x: m.seen.add_(1), seen=torch.ones(3, device="meta")),
    "inference tensor": _inference_tensor,
    "values through NumPy": lambda: Changing(lambda m, x: m.seen.numpy().fill(3), seen=torch.ones(5)),
    "values in a thread": lambda: buffered(_thread, torch.ones(5)),
    "values through .data": lambda: Changing(lambda m, x: m.lin.weight.data.mul_(2)),
    "large weights through .data": lambda: Changing(lambda m, x: m.big.weight.data.mul_(2), big=nn.Linear(300, 300)),
    "dtype of a parameter": lambda: Changing(_half, other=nn.Linear(4, 4)),
    "device of parameters": lambda: Changing(_device, other=nn.Linear(4, 4), third=nn.Linear(4, 4)),
    "requires_grad": lambda: Changing(_frozen),
    "gradients": _with_gradients,
    "hooks on a parameter": lambda: Changing(_hook),
    "hooks on modules": lambda: Changing(_hooks),
    "attributes of parameters": _with_attribute,
    "tied parameters": _tied,
    "lazy modules": lambda: Changing(lambda m, x: m.lazy(x), lazy=nn.LazyLinear(3)),
    "class": lambda: Changing(_class),
    "class attributes": lambda: Counted(_class_count),
    "module replaced": lambda: Changing(lambda m, x: setattr(m, "other", nn.ReLU()), other=nn.Tanh()),
    "module added to a list": lambda: Changing(lambda m, x: m.many.append(nn.ReLU()), many=nn.ModuleList([nn.Tanh()])),
    "training flags": lambda: Changing(lambda m, x: m.eval()),
    "attributes": lambda: Changing(lambda m, x: (setattr(m, "last", x), delattr(m, "old")), old=1),
    "deep containers": lambda: Changing(_deep, log={"a": {"b": [1], "c": ((1, {2}),)}}),
    "containers of every kind": lambda: Changing(
        _counts, counter=Counter("xx"), default=defaultdict(list), ordered=OrderedDict(a=1, b=2), queue=deque([1, 2], 2),
        members={1, 2}, raw=bytearray(b"abc"), numbers=array.array("d", [1.0, 2.0]),
    ),
    "containers with methods of their own": lambda: Changing(lambda m, x: dict.__setitem__(m.calls, "a", 2), calls=Calls(a=1)),
    "NumPy array": lambda: Changing(lambda m, x: m.table.__setitem__(1, 5), table=numpy.arange(4.0)),
    "helper object": lambda: Changing(_both, helper=Helper()),
    "helper with slots": lambda: Changing(_slots, helper=Slotted()),
    "helper in containers": lambda: Changing(lambda m, x: setattr(m.helpers["a"][0], "count", 9), helpers={"a": (Helper(),)}),
    "closure": lambda: Changing(_reclose()),
    "generators": lambda: Changing(
        _draw, torch_rng=torch.Generator(), python_rng=random.Random(3), numpy_rng=numpy.random.default_rng(0),
        old_rng=numpy.random.RandomState(1),
    ),
    "switches": lambda: Changing(_switch),
    "inference mode left on": lambda: Changing(_inference),
    "default device": lambda: Changing(lambda m, x: torch.set_default_device("meta")),
    "input": lambda: Changing(_input),
    "batch normalisation": lambda: Changing(lambda m, x: m.norm(x), norm=nn.BatchNorm1d(4)),
    "large batch normalisation": lambda: Changing(lambda m, x: m.norm(torch.rand(2, 20_000)), norm=nn.BatchNorm1d(20_000)),
    "instance normalisation": lambda: Changing(
        lambda m, x: m.norm(torch.rand(2, 30_000, 3)), norm=nn.InstanceNorm1d(30_000, track_running_stats=True)
    ),
    "renormalised embedding": lambda: Changing(
        lambda m, x: m.table(torch.tensor([1, 2])), table=nn.Embedding(200, 300, max_norm=0.1)
    ),
    "recurrent weights": lambda: Changing(lambda m, x: m.rnn(x[None]), rnn=nn.LSTM(4, 4)),
    "buffers of a scripted module": lambda: Changing(lambda m, x: m.norm(x), norm=torch.jit.script(nn.BatchNorm1d(4))),
    "failure": lambda: buffered(_fail, torch.zeros(3)),
}  # fmt: skip


def _fail(m: Any, x: torch.Tensor) -> None:
    m.seen.add_(1)
    m.extra = 1
    raise ValueError("as planned")


def _freed() -> torch.Tensor:
    seen = torch.ones(4)
    seen.untyped_storage().resize_(0)
    return seen


def _fill_freed(m: Any, x: torch.Tensor) -> None:
    m.seen.untyped_storage().resize_(16)
    m.seen.fill_(1)


def _base() -> torch.Tensor:
    return torch.zeros(1)


def _nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
