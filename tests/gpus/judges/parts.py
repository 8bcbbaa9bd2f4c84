"""What a virtual GPU does with each module of torch's module_db and each optimizer of its optim_db."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._pytree import tree_map

from tests.gpus.judges.verdicts import HOME, Verdict, on_cpu, tensors, unequal

MODULES = {info.name: info for info in module_db}
OPTIMIZERS = {info.name: info for info in optim_db}
AWAY = "cuda:0"
FLOAT = torch.float32


def judge_module(name: str, samples: int) -> Iterator[Verdict]:
    """Forward, backward and state of a module, and an input on the other GPU."""
    info = MODULES[name]
    for training in (True, False):
        inputs = info.module_inputs_func(info, device=HOME, dtype=FLOAT, requires_grad=True, training=training)
        for place, given in enumerate(inputs[:samples]):
            if given.forward_input is None:
                continue
            torch.manual_seed(0)
            made = given.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to("cpu", FLOAT).train(training)
            text = _told(_module_fault, module, given.forward_input)
            yield Verdict(name, f"{place}, {'training' if training else 'evaluation'}", "module", not text, text)


def _module_fault(module: torch.nn.Module, given: Any) -> str:
    there = copy.deepcopy(module).to(HOME)
    expected = _step(module, *tree_map(on_cpu, (given.args, given.kwargs)))
    with torch.backends.cudnn.flags(enabled=module.training):  # else cuDNN has no backward for recurrent layers
        found = _step(there, given.args, given.kwargs)
    away = [str(each.device) for each in (*found, *there.state_dict().values()) if str(each.device) != HOME]
    if away:
        return f"something is on {away[0]}"
    return next((text for pair in zip(found, expected, strict=True) if (text := unequal(*pair))), "")


def _step(module: torch.nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Results, and gradients of parameters."""
    torch.manual_seed(0)
    results = tensors(module(*args, **kwargs))
    roots = [result for result in results if result.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    return results + [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


def judge_optimizer(name: str, samples: int) -> Iterator[Verdict]:
    """Two steps of parameters on both GPUs, with each set of options, and the errors that the list names."""
    info = OPTIMIZERS[name]
    for given in info.optim_inputs_func(device=HOME)[: 2 * samples]:
        text = _told(_optimizer_fault, info, given.kwargs)
        yield Verdict(name, given.desc, "optimizer", not text, text)
    for place, each in enumerate(info.optim_error_inputs_func(device=HOME, dtype=FLOAT)):
        wanted = each.optimizer_error_input
        try:
            info.optim_cls(wanted.params, **wanted.kwargs)
        except each.error_type as error:
            yield Verdict(name, str(place), "error", each.error_regex in str(error), str(error))
        else:
            yield Verdict(name, str(place), "error", each.error_on is not None and "STEP" in str(each.error_on), "not raised")


def _optimizer_fault(info: Any, options: dict[str, Any]) -> str:
    places = ((HOME, HOME), (HOME, AWAY)) if info.supports_multiple_devices else ((HOME, HOME),)
    found = [_trained(info, options, devices) for devices in places]
    here = {name: on_cpu(value) for name, value in options.items()}
    if "foreach" in info.supported_impls and not options.get("differentiable"):
        here.setdefault("foreach", True)  # the usual way on GPUs, which rounds in its own way
    expected = _trained(info, here, ("cpu", "cpu"))
    if [tuple(str(parameter.device) for parameter in each) for each in found] != list(places):
        return "a parameter is elsewhere"
    return next((text for each in found for pair in zip(each, expected, strict=True) if (text := unequal(*pair))), "")


def _trained(info: Any, options: dict[str, Any], devices: tuple[str, str]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.rand(3, 4).to(device)) for device in devices]
    optimizer = info.optim_cls(parameters, **copy.deepcopy(options))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = sum(parameter.pow(2).sum().cpu() for parameter in parameters)  # type: ignore[assignment]
        loss.backward()
        if info.only_supports_sparse_grads:
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad = parameter.grad.to_sparse()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return [parameter.detach() for parameter in parameters]


def _told(fault: Any, *given: Any) -> str:
    try:
        return str(fault(*given))
    except Exception as error:
        return f"{type(error).__name__}: {error}".split("\n")[0][:300]
