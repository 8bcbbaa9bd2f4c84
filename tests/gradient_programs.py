"""Programs in which gradients meet, are held, handed on or replaced: images go in, and backward begins with what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Outputs = tuple[Tensor, ...]
SHAPES = ((2, 6, 1, 1), (1, 6, 1, 4), (1, 1, 3, 2), (2, 6, 3, 2))
PROGRAMS: dict[str, Callable[[Tensor], Outputs]] = {}
_kept: list[Any] = []


def program(run: Callable[[Tensor], Outputs]) -> Callable[[Tensor], Outputs]:
    def begin(images: Tensor) -> Outputs:
        _kept.clear()
        return run(images)

    PROGRAMS[run.__name__] = begin
    return run


def norm(images: Tensor) -> Tensor:
    """The kernel of its backward goes by the strides of the gradient, and is not right for all of them."""
    numbers = torch.arange(1.0, images.shape[1] + 1).to(images.device)
    return nn.functional.batch_norm(images, numbers, numbers + 1, numbers)


def tokens(images: Tensor) -> Tensor:
    return images.flatten(2).transpose(1, 2)


def split(images: Tensor) -> Outputs:
    """Two ways on, whose gradients have other strides."""
    return norm(images), tokens(images).exp()


class Expanded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        ctx.save_for_backward(images)
        return images.mean((2, 3))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (images,) = ctx.saved_tensors
        return (gradient / images[0, 0].numel())[:, :, None, None].expand_as(images)


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        return images.view_as(images)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        _kept.append(gradient)
        return gradient


@program
def tensor_hooks_keep_gradients(images: Tensor) -> Outputs:
    images = images * 1
    doubled, turned = images * 2, images.mT.exp()
    for each in (images, doubled, turned):
        each.register_hook(_kept.append)
    return (*split(images), doubled, turned)


@program
def a_hook_keeps_a_view(images: Tensor) -> Outputs:
    normed = norm(images)
    turned = tokens(normed)
    turned.register_hook(lambda gradient: _kept.append(gradient[0]))
    return normed.exp(), turned.sin(), turned * 1


@program
def a_hook_lays_its_gradient_out_anew(images: Tensor) -> Outputs:
    normed = norm(images)
    normed.register_hook(lambda gradient: gradient.mT.contiguous().mT)
    return normed.exp(), normed * 1


@program
def retained_gradients(images: Tensor) -> Outputs:
    normed = norm(images)
    normed.retain_grad()
    return (*split(normed), normed * 1)


@program
def functions_of_the_user(images: Tensor) -> Outputs:
    normed = norm(images)
    kept = Keeping.apply(normed)
    return Expanded.apply(normed), kept * 2, tokens(kept).exp(), normed.sin()


@program
def module_hooks(images: Tensor) -> Outputs:
    model = nn.Sequential(nn.BatchNorm2d(images.shape[1]).eval(), nn.ReLU()).to(images.device, images.dtype)
    model[0].register_full_backward_hook(lambda module, given, made: _kept.append(given))
    model[1].register_full_backward_pre_hook(lambda module, made: None)
    return split(model(images))


@program
def node_hooks(images: Tensor) -> Outputs:
    normed = norm(images)
    normed.grad_fn.register_prehook(_kept.append)
    normed.grad_fn.register_hook(lambda given, made: _kept.append(given))
    return split(normed)


@program
def hooks_after_accumulation(images: Tensor) -> Outputs:
    images.register_post_accumulate_grad_hook(lambda leaf: _kept.append(leaf.grad))
    return split(norm(images))


@program
def checkpoints(images: Tensor) -> Outputs:
    normed, again = (checkpoint(norm, images * 1, use_reentrant=way) for way in (False, True))
    return (*split(normed), *split(again))


@program
def saved_tensor_hooks(images: Tensor) -> Outputs:
    with torch.autograd.graph.saved_tensors_hooks(Tensor.clone, lambda saved: saved * 1):
        normed = norm(images).exp()
    with torch.autograd.graph.save_on_cpu():
        return split(normed)


@program
def second_derivatives(images: Tensor) -> Outputs:
    (gradient,) = torch.autograd.grad(norm(images).exp().square().sum(), images, create_graph=True)
    return split(gradient)


@program
def two_backwards(images: Tensor) -> Outputs:
    sum(each.sum() for each in split(norm(images))).backward()
    return split(norm(images * 1))


@program
def written_in_place(images: Tensor) -> Outputs:
    normed = norm(images).clone()
    normed.mul_(2)
    normed[:, :1].add_(1)
    return split(normed)
