"""`devwidget.plan` and `devwidget.place`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.validation import refuse_loss
from devwidget.extras.plan.records.answers import Layout
from devwidget.extras.plan.records.parallel_plan import ParallelPlan
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.schema.public_calls import says_what_fits


@overload
def plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int | None = ...,
    memory: int | str | Sequence[int | str] | None = ...,
    card: str | None = ...,
    loss_fn: Callable[..., Any] | None = ...,
    target: Any = ...,
    optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = ...,
    placement: str | Mapping[str, Any] = ...,
    parallel: None = ...,
    loop: str | Callable[..., Any] | None = ...,
    accumulate: int = ...,
    autocast: torch.dtype | torch.autocast | Literal[False] | None = ...,
    grad_scaler: bool = ...,
    zero_grad: Literal["none", "zero"] | None = ...,
    checkpointing: bool | Literal["reentrant"] = ...,
) -> Plan: ...


@overload
def plan(
    model: nn.Module,
    batch: Any,
    *,
    memory: int | str | Sequence[int | str] | None = ...,
    card: str | None = ...,
    loss_fn: Callable[..., Any] | None = ...,
    target: Any = ...,
    optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = ...,
    parallel: Mapping[str, int],
    parallelize: Callable[..., Any] | None = ...,
    microbatches: int | None = ...,
) -> ParallelPlan: ...


@says_what_fits
def plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int | None = None,
    memory: int | str | Sequence[int | str] | None = None,
    card: str | None = None,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = None,
    placement: str | Mapping[str, Any] = "as is",
    parallel: Mapping[str, int] | None = None,
    parallelize: Callable[..., Any] | None = None,
    microbatches: int | None = None,
    loop: str | Callable[..., Any] | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | torch.autocast | Literal[False] | None = None,
    grad_scaler: bool = False,
    zero_grad: Literal["none", "zero"] | None = None,
    checkpointing: bool | Literal["reentrant"] = False,
) -> Plan | ParallelPlan:
    """Predict the peak memory of one step on GPUs that you do not have, without changing the model.

    Args:
        model: read, and never run itself.
        batch: as for `trace`.
        gpus: how many there would be, by default one, or as many as `memory` names; with `parallel` as many as the mesh has
            ranks.
        memory: of each, as for `simulate`; only allocated memory is compared with it.
        card: in its place, the kind of each, as for `simulate`: then what the allocator reserves, cuBLAS's workspaces and
            CUDA's context are predicted too, and it fits if all of that does.
        loss_fn: as for `trace`.
        target: as for `trace`.
        optimizer: an optimizer of the model, a class, or `partial(AdamW, foreach=False)`; with one, memory is that of the
            second step, with its state.
        placement: "as is" (a model on the cpu is placed on cuda:0), "data parallel", a device map as accelerate
            writes it, or "auto" for accelerate's proposal.
        parallel: in place of `gpus`, a mesh for `torch.distributed`, such as `{"dp": 32, "tp": 8}`: a step of one rank of each
            kind is run on a virtual GPU, on the batch of one rank.
        parallelize: your function of model and mesh that splits the model in place, or returns the part of a rank, such as one
            that calls `fully_shard`; by default `ddp` is DistributedDataParallel, of `dp` or `fsdp` each block of a list is one
            unit of FSDP2, `{"replicate": 2, "shard": 4}` is HSDP, and `pp` has stages of equal length.
        microbatches: of a mesh with `pp`; as many as there are stages by default.
        loop: what still lives when the next part runs. "step": a function makes the step, and its output dies at its end.
            "plain": `out = model(x)` in a loop, and the output lives into the next forward. "trainer": transformers' Trainer,
            and the output dies before backward. By default "step", and the plan says what the others would take. A function
            of yours is called with the model, the batch and the optimizer on virtual GPUs: a generator that yields after each
            step, or a function that runs one; whatever is in it counts.
        accumulate: batches whose gradients are added up before the optimizer steps.
        autocast: the dtype that forward and loss compute in, or `torch.autocast(...)`; by default what is active around the
            call, and False for none.
        grad_scaler: scale the loss and step the optimizer by `torch.amp.GradScaler`.
        zero_grad: "none" lets gradients go after a step, "zero" keeps them; by default what the optimizer does.
        checkpointing: compute what is in the model's blocks again in backward, as Hugging Face models do by
            `gradient_checkpointing_enable`, others by `torch.utils.checkpoint` around each block of a list; "reentrant" in the
            older way.

    Returns:
        A frozen record to print, with `.fits`, `.devices`, `.to_frame()`, `.to_html(path)` and `.save(path)`; for a mesh one
            with `.ranks`, an entry for each kind of rank.

    Raises:
        DevwidgetError: if the placement cannot be used, or the step fails in it; where virtual GPUs are running or real ones
            were used, also if the model cannot be sent to a child process, which plans there.
        SimulationError: if the step decides by values that the weights make of the batch, which a plan does not have.
    """
    refuse_loss(loss_fn)
    options: dict[str, Any] = {"loop": loop, "accumulate": accumulate, "autocast": autocast, "grad_scaler": grad_scaler}
    options |= {"zero_grad": zero_grad, "checkpointing": checkpointing}
    asked: dict[str, Any] = {"gpus": gpus, "memory": memory, "card": card, "placement": placement}
    asked |= {"loss_fn": loss_fn, "optimizer": optimizer}
    if (parallel, parallelize, microbatches) != (None, None, None):
        torch_internals.check_names("planning for a mesh")
        from devwidget.extras.plan.parallel import make_parallel_plan

        asked |= {"parallel": parallel, "parallelize": parallelize, "microbatches": microbatches}
        return make_parallel_plan(model, batch, target, asked, options)

    from devwidget.extras.plan.make_plan import make_plan

    if gpus is None:
        asked["gpus"] = 1 if memory is None or isinstance(memory, int | str) else len(memory)
    return make_plan(model, batch, target, asked, options)


@says_what_fits
def place(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int,
    memory: int | str | Sequence[int | str] | None = None,
    card: str | None = None,
    loss_fn: Callable[..., Any] | None = None,
    target: Any = None,
    optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = None,
    loop: str | Callable[..., Any] | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | torch.autocast | Literal[False] | None = None,
    grad_scaler: bool = False,
    zero_grad: Literal["none", "zero"] | None = None,
    checkpointing: bool | Literal["reentrant"] = False,
) -> Layout:
    """Propose a device for each block of a model, so that the step fits with few transfers.

    Weights, what is kept for backward, gradients and the optimizer's state of each block count, from one step without values.

    Args:
        model: read, and never run itself.
        batch: as for `trace`.
        gpus: how many there would be.
        memory: of each, as for `plan`.
        card: in its place, as for `plan`.
        loss_fn: as for `trace`.
        target: as for `trace`.
        optimizer: as for `plan`.
        loop: as for `plan`, as are the next ones.
        accumulate: batches for one step of the optimizer.
        autocast: a dtype, or what is active around the call.
        grad_scaler: whether one scales the loss.
        zero_grad: "none" or "zero".
        checkpointing: of the blocks.

    Returns:
        A frozen record to print, with `.device_map` for accelerate and transformers, `.fits`, and what was rejected and why.

    Raises:
        DevwidgetError: if the blocks run on no split, or accelerate is not there, whose hooks carry activations between GPUs.
        SimulationError: as for `plan`.
    """
    from devwidget.extras.plan.layout import make_layout

    refuse_loss(loss_fn)
    asked: dict[str, Any] = {"gpus": gpus, "memory": memory, "card": card, "placement": {}}
    options: dict[str, Any] = {"loop": loop, "accumulate": accumulate, "autocast": autocast, "grad_scaler": grad_scaler}
    options |= {"zero_grad": zero_grad, "checkpointing": checkpointing}
    return make_layout(model, batch, target, {**asked, "loss_fn": loss_fn, "optimizer": optimizer}, options)
