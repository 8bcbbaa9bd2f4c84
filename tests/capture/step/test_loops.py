"""Training loops give the same numbers, bit for bit: plain, traced at each step, and recorded."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections import deque
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import devwidget

STEPS = 4


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU(inplace=True), nn.Dropout(0.2)]
    return nn.Sequential(*layers[:-3])


class Loop:
    """One training loop; its attributes are what is compared afterwards."""

    def prepare(self) -> None:
        """What comes before the step, and is not traced."""

    def traced(self) -> list[devwidget.Trace]:
        """Traces of what the next step is going to run."""
        raise NotImplementedError

    def step(self) -> torch.Tensor:
        """One step of the loop, and its loss."""
        raise NotImplementedError


class Gan(Loop):
    """Its discriminator is traced on what the generator made, the generator through the discriminator."""

    def __init__(self) -> None:
        self.g, self.d = mlp(4, 16, 8), mlp(8, 16, 1)
        self.optimizers = [torch.optim.Adam(each.parameters(), lr=0.01) for each in (self.g, self.d)]
        self.real = torch.randn(6, 8)

    def prepare(self) -> None:
        self.noise = torch.randn(6, 4)
        self.fake = self.g(self.noise)

    def traced(self) -> list[devwidget.Trace]:
        discriminator = self.d
        return [
            devwidget.trace(self.d, self.fake, loss_fn=lambda out: F.softplus(out).mean(), optimizer=self.optimizers[1]),
            devwidget.trace(self.g, self.noise, loss_fn=lambda out: -discriminator(out).mean(), optimizer=self.optimizers[0]),
        ]

    def step(self) -> torch.Tensor:
        self.optimizers[1].zero_grad()
        loss = F.softplus(self.d(self.fake.detach())).mean() + F.softplus(-self.d(self.real)).mean()
        loss.backward()
        self.optimizers[1].step()
        self.optimizers[0].zero_grad()
        (-self.d(self.fake).mean()).backward()
        self.optimizers[0].step()
        return loss


class Dqn(Loop):
    """A replay buffer, a target network, and three generators of random numbers."""

    def __init__(self) -> None:
        self.net, self.memory = mlp(4, 16, 3), deque[Any](maxlen=20)
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.memory.extend((torch.randn(4), i % 3, float(i), torch.randn(4)) for i in range(8))
        self.rng, self.count = numpy.random.default_rng(0), 0

    def _batch(self) -> tuple[torch.Tensor, ...]:
        states, actions, rewards, following = zip(*random.sample(list(self.memory), 6), strict=True)
        return torch.stack(states), torch.tensor(actions), torch.tensor(rewards), torch.stack(following)

    def _loss(self, out: torch.Tensor, target: Any) -> torch.Tensor:
        actions, rewards, following = target
        with torch.no_grad():
            best = self.target(following).amax(1)
        return F.smooth_l1_loss(out.gather(1, actions[:, None])[:, 0], rewards + 0.9 * best)

    def traced(self) -> list[devwidget.Trace]:
        states = torch.stack([entry[0] for entry in self.memory][:6])
        target = torch.zeros(6, dtype=torch.int64), torch.zeros(6), states
        return [devwidget.trace(self.net, states, target=target, loss_fn=self._loss, optimizer=self.optimizer)]

    def step(self) -> torch.Tensor:
        self.count += 1
        state = torch.from_numpy(self.rng.random(4).astype("float32"))
        self.memory.append((state, int(self.rng.integers(3)), random.random(), torch.randn(4)))
        states, *target = self._batch()
        self.optimizer.zero_grad()
        loss = self._loss(self.net(states), target)
        loss.backward()
        self.optimizer.step()
        if self.count % 2 == 0:
            self.target.load_state_dict(self.net.state_dict())
        return loss


class Moco(Loop):
    """A momentum encoder and a queue of keys, both written by the forward pass."""

    class Encoders(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = mlp(8, 16, 4), mlp(8, 16, 4)
            self.register_buffer("queue", torch.randn(12, 4))
            self.register_buffer("at", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                for mine, theirs in zip(self.query.parameters(), self.key.parameters(), strict=True):
                    theirs.mul_(0.9).add_(mine, alpha=0.1)
                keys = F.normalize(self.key(other), dim=1)
            out = F.normalize(self.query(x), dim=1)
            logits = torch.cat([(out * keys).sum(1, keepdim=True), out @ self.queue.clone().T], 1)
            self.queue[int(self.at) : int(self.at) + 6] = keys
            self.at = (self.at + 6) % 12
            return F.cross_entropy(logits / 0.1, torch.zeros(6, dtype=torch.int64))

    def __init__(self) -> None:
        self.net = Moco.Encoders()
        self.optimizer = torch.optim.SGD(self.net.query.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        self.data = torch.randn(6, 8)

    def traced(self) -> list[devwidget.Trace]:
        return [devwidget.trace(self.net, (self.data, self.data + 1), optimizer=self.optimizer, backward=True)]

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.net(self.data + 0.1 * torch.randn(6, 8), self.data + 0.1 * torch.randn(6, 8))
        loss.backward()
        self.optimizer.step()
        return loss


class Amp(Loop):
    """Half precision with a scaler, gradients accumulated over two steps."""

    def __init__(self) -> None:
        self.net, self.scaler = mlp(8, 16, 4), torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)
        self.data, self.count = torch.randn(6, 8), 0

    def traced(self) -> list[devwidget.Trace]:
        scaler = self.scaler
        with torch.autocast("cpu", torch.bfloat16):
            loss = {"loss_fn": lambda out: scaler.scale(out.square().mean())}
            return [devwidget.trace(self.net, self.data, optimizer=self.optimizer, **loss)]

    def step(self) -> torch.Tensor:
        self.count += 1
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.net(self.data).square().mean()
        self.scaler.scale(loss / 2).backward()
        if self.count % 2 == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return loss


LOOPS = [Gan, Dqn, Moco, Amp]


def run(kind: type[Loop], how: str) -> dict[str, Any]:
    """All numbers that a loop leaves."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    loop, losses = kind(), []
    with devwidget.record() if how == "recorded" else contextlib.nullcontext():
        for _ in range(STEPS):
            loop.prepare()
            if how == "traced":
                for trace in loop.traced():
                    assert (trace.error, trace.not_restored) == ("", ())
            losses.append(loop.step().detach())
    return {"losses": losses, **_numbers(loop), "random": (random.random(), numpy.random.rand(), torch.rand(1))}


def _numbers(loop: Loop) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in vars(loop).items():
        if isinstance(part, nn.Module):
            found |= {f"{name}.{path}": tensor for path, tensor in part.state_dict().items()}
            found |= {f"{name}.{path}.grad": each.grad for path, each in part.named_parameters()}
        elif hasattr(part, "state_dict"):
            found[name] = part.state_dict()
        elif isinstance(part, int | float | torch.Tensor | deque | list):
            found[name] = [each.state_dict() for each in part] if name == "optimizers" else part
    return found


def same(one: Any, other: Any) -> bool:
    """Equal to the bit."""
    if isinstance(one, torch.Tensor):
        bits = (each.detach().cpu().reshape(-1).view(torch.uint8) for each in (one, other))
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("how", ["traced", "recorded"])
@pytest.mark.parametrize("kind", LOOPS)
def test_a_loop_gives_the_same_numbers(kind, how):
    plain, watched = run(kind, "plain"), run(kind, how)
    assert plain.keys() == watched.keys()
    assert [key for key in plain if not same(plain[key], watched[key])] == []


@pytest.mark.parametrize("kind", [Gan, Moco])
def test_a_loop_gives_the_same_numbers_on_a_virtual_gpu(kind):
    found = []
    for how in ("plain", "traced"):
        with devwidget.simulate(1), torch.device("cuda"):
            found.append(run(kind, how))
    assert [key for key in found[0] if not same(found[0][key], found[1][key])] == []
