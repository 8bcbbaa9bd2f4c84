"""Models that change something in a step, one kind of change each, by the name of what they change."""

from __future__ import annotations

import array
import random
import threading
from collections import OrderedDict, defaultdict, deque
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


def _write_many(m, x):
    m.seen[1:3] += 1
    m.seen.t()[2].mul_(3)


def _hooks(m, x):
    m.lin.weight.register_hook(lambda grad: grad * 2)
    m.lin.weight.register_post_accumulate_grad_hook(lambda p: None)
    m.lin.register_forward_hook(lambda *args: None)
    m.register_full_backward_hook(lambda *args: None)


def _deep(m, x):
    m.log["a"]["b"].append(x)
    m.log["a"]["c"][0][1].add(5)
    m.log["new"] = 1


def _both(m, x):
    m.helper.count += 1
    m.helper.seen[0].add_(1)
    m.helper.extra = 1
    m.slotted.count += 1
    m.slotted.unset = 1


def _fill(m, x):
    m.default["y"].append(1)
    m.ordered.move_to_end("a")
    m.queue.append(3)
    m.members.add(4)
    m.raw[0] = 7
    m.raw.append(9)
    m.numbers[1] = 2.5
    m.table[1] = 5
    dict.__setitem__(m.calls, "a", 2)


def _draw(m, x):
    torch.rand(1, generator=m.torch_rng)
    m.python_rng.random()
    m.numpy_rng.random()
    m.old_rng.rand()
    random.random()
    numpy.random.rand()


def _switch(m, x):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")


def _thread(m, x):
    worker = threading.Thread(target=lambda: m.seen.add_(1))
    worker.start()
    worker.join()


def _class(m, x):
    m.__class__ = Other


def _retie(m, x):
    m.head.weight = nn.Parameter(m.lin.weight.detach().clone())


def _tied():
    model = Changing(_retie, head=nn.Linear(4, 4, bias=False))
    model.head.weight = model.lin.weight
    return model


def _inference(m, x):
    m.mode = torch.inference_mode()
    m.mode.__enter__()


def _attribute_of_parameter(m, x):
    m.lin.weight.times = getattr(m.lin.weight, "times", 0) + 1


def _inference_tensor():
    with torch.inference_mode():
        seen = torch.ones(3)
    return Changing(_in_inference, seen=seen)


def _in_inference(m, x):
    with torch.inference_mode():
        m.seen.add_(1)


def _graph(m, x):
    m.seen.add_(m.lin.weight.sum())


def _grads(m, x):
    m.lin.weight.grad = torch.ones(4, 4)
    m.other.weight.grad.add_(1)
    m.other.bias.grad = None


def _with_gradients():
    model = Changing(_grads, other=nn.Linear(4, 4))
    model.other(torch.ones(1, 4)).sum().backward()
    return model


def _move(m, x):
    m.other.to("meta")
    m.third.half()
    m.lin.weight.data = m.lin.weight.data.double().float()
    m.lin.bias.requires_grad_(False)


def _replace(m, x):
    m.other = nn.ReLU()
    m.many.append(nn.ReLU())
    m.last = x
    del m.old
    m.eval()


ROWS: dict[str, Callable[[], nn.Module]] = {
    "storage of a buffer": lambda: buffered(lambda m, x: m.seen.set_(torch.ones(2)), torch.zeros(3)),
    "size of a buffer": lambda: buffered(lambda m, x: m.seen.resize_(8, 4).fill_(3), torch.zeros(2, 4)),
    "parts of a buffer": lambda: buffered(_write_many, torch.rand(300, 400)),
    "many parts of a buffer": lambda: buffered(
        lambda m, x: [m.seen[i].add_(1) for i in range(0, 200, 2)], torch.rand(300, 400)
    ),
    "graph of a buffer": lambda: buffered(_graph, torch.ones(3)),
    "freed storage": lambda: buffered(_fill_freed, _freed()),
    "expanded tensor": lambda: Changing(lambda m, x: m.base.add_(1), base=torch.zeros(1), wide=torch.zeros(1).expand(10**12)),
    "sparse COO": lambda: Changing(
        lambda m, x: m.seen.add_(torch.ones(3, 3).to_sparse()), seen=torch.eye(3).to_sparse()
    ),
    "sparse CSR": lambda: Changing(lambda m, x: m.seen.values().mul_(2), seen=torch.eye(3).to_sparse_csr()),
    "strided nested": lambda: Changing(lambda m, x: m.seen.mul_(2), seen=_nested(torch.strided)),
    "jagged nested": lambda: Changing(lambda m, x: m.seen._values.mul_(2), seen=_nested(torch.jagged)),
    "quantized": lambda: Changing(
        lambda m, x: m.seen.fill_(0.5), seen=torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    ),
    "inference tensor": _inference_tensor,
    "values through NumPy": lambda: Changing(lambda m, x: m.seen.numpy().fill(3), seen=torch.ones(5)),
    "values in a thread": lambda: buffered(_thread, torch.ones(5)),
    "values through .data": lambda: Changing(lambda m, x: m.big.weight.data.mul_(2), big=nn.Linear(300, 300)),
    "device, dtype and requires_grad": lambda: Changing(_move, other=nn.Linear(4, 4), third=nn.Linear(4, 4)),
    "gradients": _with_gradients,
    "hooks": lambda: Changing(_hooks),
    "attributes of parameters": lambda: Changing(_attribute_of_parameter),
    "tied parameters": _tied,
    "lazy modules": lambda: Changing(lambda m, x: m.lazy(x), lazy=nn.LazyLinear(3)),
    "class": lambda: Changing(_class),
    "modules, attributes and training": lambda: Changing(_replace, other=nn.Tanh(), many=nn.ModuleList([nn.Tanh()]), old=1),
    "deep containers": lambda: Changing(_deep, log={"a": {"b": [1], "c": ((1, {2}),)}}),
    "containers of every kind": lambda: Changing(
        _fill, default=defaultdict(list), ordered=OrderedDict(a=1, b=2), queue=deque([1, 2], 2), members={1, 2},
        raw=bytearray(b"abc"), numbers=array.array("d", [1.0, 2.0]), table=numpy.arange(4.0), calls=Calls(a=1),
    ),
    "helper objects": lambda: Changing(_both, helper=Helper(), slotted=Slotted()),
    "generators": lambda: Changing(
        _draw, torch_rng=torch.Generator(), python_rng=random.Random(3), numpy_rng=numpy.random.default_rng(0),
        old_rng=numpy.random.RandomState(1),
    ),
    "switches": lambda: Changing(_switch),
    "inference mode left on": lambda: Changing(_inference),
    "default device": lambda: Changing(lambda m, x: torch.set_default_device("meta")),
    "input": lambda: Changing(lambda m, x: x.mul_(2)),
    "statistics": lambda: Changing(lambda m, x: m.norm(torch.rand(2, 20_000)), norm=nn.BatchNorm1d(20_000)),
    "renormalised embedding": lambda: Changing(
        lambda m, x: m.table(torch.tensor([1, 2])), table=nn.Embedding(200, 300, max_norm=0.1)
    ),
    "buffers of a scripted module": lambda: Changing(lambda m, x: m.norm(x), norm=torch.jit.script(nn.BatchNorm1d(4))),
}  # fmt: skip


def _freed() -> torch.Tensor:
    seen = torch.ones(4)
    seen.untyped_storage().resize_(0)
    return seen


def _fill_freed(m: Any, x: torch.Tensor) -> None:
    m.seen.untyped_storage().resize_(16)
    m.seen.fill_(1)


def _nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
