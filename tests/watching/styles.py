"""Training loops as people write them, none of which is a `Loop`: healthy ones, and ones with a fault."""

from __future__ import annotations

import collections
import copy
import functools
import io
import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Watcher = Callable[..., Any]
HEALTHY: list[Callable[[Watcher], Any]] = []
FAULTY: list[tuple[Callable[[Watcher], Any], str, str]] = []
"""The loop, the kind of what is found, and words of the line that it names."""
GPU = "cuda"


def faulty(kind: str, line: str) -> Callable[..., Any]:
    """A loop of which this has to be said."""

    def add(loop: Callable[[Watcher], Any]) -> Callable[[Watcher], Any]:
        FAULTY.append((loop, kind, line))
        return loop

    return add


def healthy(loop: Callable[[Watcher], Any]) -> Callable[[Watcher], Any]:
    """A loop of which nothing is to be said."""
    HEALTHY.append(loop)
    return loop


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class Texts(nn.Module):
    def __init__(self, words=50, width=16):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.recurrent = nn.GRU(width, width, batch_first=True)

    def forward(self, words):
        return self.head(self.recurrent(self.embedding(words))[0])


def draw_images(count=4):
    return torch.randn(count, 1, 6, 6, device=GPU), torch.randint(0, 10, (count,), device=GPU)


def draw_texts(count=4, length=8):
    return torch.randint(0, 50, (count, length), device=GPU)


def next_word_loss(model, words):
    return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def descend(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@healthy
def autocast_with_a_scaler_and_accumulation(watch):
    model = Images().to(GPU)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), torch.amp.GradScaler("cuda")
    with watch(model, optimizer) as run:
        for step in range(300):
            images, labels = draw_images()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(images), labels) / 2
            scaler.scale(loss).backward()
            if step % 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
    return run


@healthy
def an_average_that_is_evaluated(watch):
    model = Images().to(GPU)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer, held_out, best = torch.optim.AdamW(model.parameters()), [draw_images() for _ in range(3)], math.inf
    with watch(model, optimizer) as run:
        for step in range(300):
            images, labels = draw_images()
            descend(F.cross_entropy(model(images), labels), optimizer)
            average.update_parameters(model)
            if step % 50 == 49:
                average.eval()
                with torch.inference_mode():
                    best = min(best, sum(F.cross_entropy(average(x), y).item() for x, y in held_out))
    return run


@healthy
def two_optimizers_against_each_other(watch):
    maker, judge = (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, out)).to(GPU) for out in (8, 1))
    makes, judges = (torch.optim.Adam(each.parameters(), betas=(0.5, 0.999)) for each in (maker, judge))
    bce, ones, zeros, history = nn.BCEWithLogitsLoss(), torch.ones(4, 1, device=GPU), torch.zeros(4, 1, device=GPU), []
    with watch(maker, makes) as run:
        for step in range(300):
            fake = maker(torch.randn(4, 8, device=GPU))
            loss = bce(judge(torch.randn(4, 8, device=GPU)), ones) + bce(judge(fake.detach()), zeros)
            descend(loss, judges)
            descend(bce(judge(fake), ones), makes)
            if step % 25 == 0:
                history.append(loss.item())
    return run


@healthy
def a_closure_that_is_evaluated_several_times(watch):
    model = nn.Linear(16, 4).to(GPU)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)
    x, y = torch.randn(32, 16, device=GPU), torch.randn(32, 4, device=GPU)
    with watch(model, optimizer) as run:
        for _ in range(200):

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x + 0.01 * torch.randn_like(x)), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    return run


@healthy
def a_queue_of_fixed_size_in_the_model(watch):
    class Contrasts(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.at = nn.Linear(16, 8), 0
            self.key = copy.deepcopy(self.query).requires_grad_(False)
            self.register_buffer("queue", torch.randn(8, 64))

        def forward(self, one, other):
            query = F.normalize(self.query(one), dim=1)
            with torch.no_grad():
                for ours, theirs in zip(self.key.parameters(), self.query.parameters(), strict=True):
                    ours.lerp_(theirs, 0.01)
                key = F.normalize(self.key(other), dim=1)
            logits = torch.cat([(query * key).sum(1, keepdim=True), query @ self.queue.clone()], 1) / 0.07
            self.queue[:, self.at : self.at + 4] = key.T
            self.at = (self.at + 4) % 64
            return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long, device=query.device))

    model = Contrasts().to(GPU)
    optimizer = torch.optim.SGD(model.query.parameters(), 0.03)
    with watch(model, optimizer) as run:
        for _ in range(300):
            descend(model(torch.randn(4, 16, device=GPU), torch.randn(4, 16, device=GPU)), optimizer)
    return run


@healthy
def a_buffer_of_experience_that_is_not_full_yet(watch):
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4)).to(GPU)
    optimizer, buffer = torch.optim.Adam(net.parameters()), collections.deque(maxlen=2000)
    with watch(net, optimizer) as run:
        for _ in range(300):
            buffer.append(torch.randn(64, 64, device=GPU))
            descend(net(torch.cat(random.sample(buffer, min(len(buffer), 2)))).square().mean(), optimizer)
    return run


@healthy
def two_stages_with_loops_of_their_own(watch):
    model = Images().to(GPU)
    points = torch.utils.data.TensorDataset(torch.randn(400, 1, 6, 6), torch.randint(0, 10, (400,)))
    optimizer, loader, history = torch.optim.Adam(model.parameters()), torch.utils.data.DataLoader(points, 4), []
    with watch(model, optimizer, every=20) as run:
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(GPU)), y.to(GPU))
            descend(loss, optimizer)
            history.append(loss.item())
        for batch in loader:
            images, labels = (each.to(GPU) for each in batch)
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
            descend(loss, optimizer)
            history.append(float(loss.detach()))
    return run


@healthy
def predictions_of_an_epoch_that_are_let_go(watch):
    model = Images().to(GPU)
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model, optimizer) as run:
        for _ in range(2):
            scores = []
            for _ in range(180):
                images, labels = draw_images(8)
                logits = model(images)
                descend(F.cross_entropy(logits, labels), optimizer)
                scores.append((logits.detach().softmax(1), labels))
            torch.cat([score for score, _ in scores]).argmax(1).eq(torch.cat([each for _, each in scores])).sum().item()
    return run


@healthy
def lengths_that_grow_up_to_a_bound(watch):
    model = Texts().to(GPU)
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model, optimizer) as run:
        for step in range(240):
            descend(next_word_loss(model, draw_texts(length=min(4 + step // 10, 20))), optimizer)
    return run


@healthy
def checkpoints_that_are_loaded_again(watch):
    model = Texts().to(GPU)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 240)
    with watch(model, optimizer) as run:
        for step in range(240):
            descend(next_word_loss(model, draw_texts(random.choice((2, 4, 6)), random.randrange(4, 10))), optimizer)
            schedule.step()
            if step % 40 == 39:
                file = io.BytesIO()
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            if step == 200:
                file.seek(0)
                saved = torch.load(file, map_location="cpu")
                model.load_state_dict(saved["model"])
                optimizer.load_state_dict(saved["optimizer"])
    return run


@faulty("memory-growth", "self.memory[key] = output.detach().clone()")
def a_hook_that_keeps_activations(watch):
    class Probe:
        def __init__(self):
            self.memory = {}

        def __call__(self, module, inputs, output):
            key = f"{len(self.memory)}"
            self.memory[key] = output.detach().clone()

    probe, model = Probe(), Images().to(GPU)
    model.body[0].register_forward_hook(probe)
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model, optimizer) as run:
        for _ in range(180):
            descend(model(draw_images(8)[0]).square().mean(), optimizer)
    return run


@faulty("memory-growth", "return self.head(self.recurrent(self.embedding(words))[0])")
def a_running_loss_with_its_graph(watch):
    model = Texts().to(GPU)
    optimizer, running = torch.optim.Adam(model.parameters()), torch.zeros((), device=GPU)
    with watch(model, optimizer) as run:
        for _ in range(180):
            loss = next_word_loss(model, draw_texts())
            running = 0.9 * running + 0.1 * loss
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
    return run


@faulty("memory-growth", "return torch.linspace(0, 1, 2048 + count, device=GPU)")
def a_function_that_remembers_all(watch):
    @functools.cache
    def make_noise(count):
        return torch.linspace(0, 1, 2048 + count, device=GPU)

    model = Images().to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer) as run:
        for step in range(180):
            images, _ = draw_images()
            descend(model(images + make_noise(step)[:4].view(4, 1, 1, 1)).square().mean(), optimizer)
    return run


@faulty("late-wait", "if torch.isnan(loss):")
def a_guard_against_nan_after_a_warm_up(watch):
    def refuse_nan(loss):
        if torch.isnan(loss):
            raise ArithmeticError

    model = Images().to(GPU)
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model, optimizer, every=20) as run:
        for step in range(120):
            loss = model(draw_images()[0]).square().mean()
            descend(loss, optimizer)
            if step > 70:
                refuse_nan(loss)
    return run


@faulty("late-hop", "loss = F.cross_entropy(model(images), labels, weight=None if weights is None else weights.to(GPU))")
def weights_on_the_host_in_the_second_stage(watch):
    model, weights = Images().to(GPU), None
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model, optimizer, every=20) as run:
        for step in range(140):
            weights = torch.ones(10) if step == 90 else weights
            images, labels = draw_images()
            loss = F.cross_entropy(model(images), labels, weight=None if weights is None else weights.to(GPU))
            descend(loss, optimizer)
    return run


@faulty("moved-model", "loss = model(images.to(device)).square().mean()")
def an_export_that_leaves_the_model_on_the_host(watch):
    model = Images().to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer) as run:
        for step in range(80):
            if step == 60:
                torch.save(model.cpu().state_dict(), io.BytesIO())
            images, device = draw_images()[0], next(model.parameters()).device
            loss = model(images.to(device)).square().mean()
            descend(loss, optimizer)
    return run


@faulty("more-memory", "teacher = copy.deepcopy(model)")
def a_teacher_that_comes_in_the_middle(watch):
    model, teacher = nn.Sequential(nn.Linear(1024, 3072), nn.ReLU(), nn.Linear(3072, 1024)).to(GPU), None
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer) as run:
        for step in range(90):
            if step == 40:
                teacher = copy.deepcopy(model)
            x = torch.randn(2, 1024, device=GPU)
            out = model(x)
            loss = out.square().mean()
            if teacher is not None:
                with torch.no_grad():
                    target = teacher(x)
                loss = loss + F.mse_loss(out, target)
            descend(loss, optimizer)
    return run


@faulty("longer-inputs", "logits = model(context[:, :-1])")
def a_context_that_is_never_cut(watch):
    model, context = Texts().to(GPU), draw_texts(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer) as run:
        for _ in range(140):
            context = torch.cat([context, draw_texts(16, 1)], 1)
            logits = model(context[:, :-1])
            descend(F.cross_entropy(logits.flatten(0, 1), context[:, 1:].flatten()), optimizer)
    return run


@faulty("out-of-memory", "loss = torch.cdist(out, out).mean()")
def a_batch_too_large_for_all_distances(watch):
    model = nn.Linear(16, 16).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer) as run:
        for step in range(80):
            out = model(torch.randn(16 if step < 60 else 4000, 16, device=GPU))
            loss = torch.cdist(out, out).mean()
            descend(loss, optimizer)
    return run
