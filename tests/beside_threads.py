"""A program with many threads: some train models of their own, others trace and record theirs meanwhile.

`python -m tests.beside_threads SECONDS [lively]` prints its figures; it exits with 1 where a loss differs from that of the same
training alone, or where a thread raised.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import faulthandler
import importlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import devwidget

SHOWN = 12
STEPS = 6
"""Of one training."""
SEEDS = 5
TRAINERS, TRACERS, RECORDERS = 8, 2, 2
OPTIMIZERS: tuple[Callable[[Any], torch.optim.Optimizer], ...] = (
    lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
    lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    lambda parameters: torch.optim.Adagrad(parameters, lr=0.01, foreach=True),
    lambda parameters: torch.optim.LBFGS(parameters, lr=0.01, max_iter=3),
)


class Scaled(torch.autograd.Function):
    """A gradient by hand that all threads share."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.factor, None


class Model(nn.Module):
    """Layers, statistics, a hook, a part that is computed again in backward, and gradients by hand, one of them of its own."""

    def __init__(self, kind: int) -> None:
        super().__init__()

        class F(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(x)
                return x.sin()

            @staticmethod
            def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
                return grad * ctx.saved_tensors[0].cos()

        self.kind, self.own = kind, F
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        x = Scaled.apply(self.own.apply(x), 0.5)
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=bool(self.kind % 2)) if self.kind % 3 == 0 else block(x)).relu()
        if x.requires_grad:
            x.register_hook(lambda grad: grad * 1.0)
        return self.head(x)


def made(kind: int, seed: int) -> tuple[Model, torch.Tensor, torch.Tensor]:
    """A model with a batch and its target, from numbers of their own: torch's generator is everybody's."""
    generator = torch.Generator().manual_seed(seed)
    model = Model(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model, torch.randn(5, 6, generator=generator), torch.randn(5, 1, generator=generator)


def train(kind: int, seed: int) -> list[float]:
    """The losses of one short training."""
    model, x, y = made(kind, seed)
    optimizer = OPTIMIZERS[kind](model.parameters())
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(STEPS):
        losses.append(optimizer.step(closure).item())
    return losses


def losses_alone() -> dict[tuple[int, int], list[float]]:
    """Of every training, before anything is recorded."""
    return {(kind, seed): train(kind, seed) for kind in range(len(OPTIMIZERS)) for seed in range(SEEDS)}


class Program:
    """What the threads share.

    Attributes:
        counts: how much was done, by what it is.
        troubles: what a thread raised, and losses that differ.
    """

    def __init__(self, seconds: float) -> None:
        self.alone = losses_alone()
        self.counts: collections.Counter[str] = collections.Counter()
        self.troubles: list[str] = []
        self._until = time.monotonic() + seconds
        self._lock = threading.Lock()

    def run(self, threads: list[tuple[str, Callable[[int], None]]]) -> None:
        """Repeat the work of each thread until the time is over."""
        running = [threading.Thread(target=self._repeat, args=(*each, number)) for number, each in enumerate(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def watch(self, over: threading.Event) -> None:
        """Trace and record models by turns, until that is over."""
        while not over.is_set():
            self._do("traced", self.trace, 0)
            self._do("recorded", self.record, 1)

    def _repeat(self, name: str, work: Callable[[int], None], number: int) -> None:
        while time.monotonic() < self._until:
            self._do(name, work, number)

    def _do(self, name: str, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException:
            self._note(f"{name} {number}: {traceback.format_exc(-4)}")
        with self._lock:
            self.counts[name] += 1

    def _note(self, trouble: str) -> None:
        with self._lock:
            self.troubles.append(trouble)

    def train(self, number: int) -> None:
        """Train as alone."""
        kind, seed = number % len(OPTIMIZERS), self.counts["trained"] % SEEDS
        if (losses := train(kind, seed)) != self.alone[kind, seed]:
            self._note(f"training {kind}, {seed}: {losses} alone {self.alone[kind, seed]}")

    def record(self, number: int) -> None:
        """Train as alone, recorded."""
        with devwidget.record() as recording:
            self.train(number)
        if troubles := [text for text in recording.trace.not_checked if text.startswith("recorder")]:
            self._note(f"recording {number}: {troubles}")

    def trace(self, number: int) -> None:
        """Trace one step; the model is as before."""
        kind, seed = number % len(OPTIMIZERS), self.counts["traced"] % SEEDS
        model, x, y = made(kind, seed)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        optimizer = OPTIMIZERS[kind % 3](model.parameters())
        found = devwidget.trace(model, x, loss_fn=functional.mse_loss, target=y, optimizer=optimizer, verify=False)
        if found.error or found.not_restored:
            self._note(f"trace {number}: {found.error} {found.not_restored}")
        if not all(torch.equal(value, before[name]) for name, value in model.state_dict().items()):
            self._note(f"trace {number}: not restored")

    def look(self, number: int) -> None:
        """Read a model that is being built: no thread trains it."""
        model, _, _ = made(number % len(OPTIMIZERS), 0)
        devwidget.snapshot(model, optimizer=torch.optim.Adam(model.parameters()))

    def live(self, number: int) -> None:
        """Do what programs do in threads besides: import, build, evaluate in another dtype, fail, trace their lines."""
        for name in (("colorsys", "tabnanny"), ("wave", "pyclbr"))[number % 2]:
            sys.modules.pop(name, None)
            importlib.import_module(name)
        model, x, _ = made(number % len(OPTIMIZERS), 1)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            model.eval()(x)
        with contextlib.suppress(RuntimeError):
            model(torch.ones(2, 3))
        sys.settrace(lambda *args: None)
        threading.Thread(target=model, args=(x,)).start()
        asyncio.run(_waited(model, x))
        sys.settrace(None)
        model.register_module(f"more{number}", nn.Linear(2, 2))


async def _waited(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    await asyncio.sleep(0)
    return model(x)


def main(seconds: float, *, lively: bool) -> int:
    """Run the program; 0 if nothing was wrong.

    Args:
        seconds: how long.
        lively: with threads that do other things besides.
    """
    faulthandler.enable()
    torch.set_num_threads(1)
    program = Program(seconds)
    threads = [("trained", program.train)] * TRAINERS
    threads += [("recorded", program.record)] * RECORDERS + [("traced", program.trace)] * TRACERS
    if lively:
        threads += [("looked", program.look), ("lived", program.live), ("lived", program.live)]
    program.run(threads)
    print(", ".join(f"{count} {what}" for what, count in sorted(program.counts.items())), f"in {seconds:.0f} s")
    print(f"{len(program.troubles)} troubles", *sorted(set(program.troubles))[:SHOWN], sep="\n")
    return int(bool(program.troubles))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), lively="lively" in sys.argv))
