"""Gradients of timm's models, plain against recorded and on virtual GPUs, bit by bit and with their strides.

    PYTHONPATH=.:PACKAGES python benchmarks/outside/gradients.py [NAME ...]

Needs timm (`packages.txt`), which imports torchvision; no weights are fetched. `timm_smallest.txt` names the model of fewest
parameters of each of its modules. Each takes one step of a batch of one (eval) and of two (eval, train) in a process of its
own, from the same parameters and seed. A line for a model says what differs and what could not be run; the last lines count.
"""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import devwidget
from tests.gradients import difference, tensors

HERE = Path(__file__).parent
LONGEST_S = 900
STEPS = {"one, eval": (1, False), "two, eval": (2, False), "two, train": (2, True)}
WATCHED: dict[str, Callable[[], Any]] = {
    "record": devwidget.record,
    "simulate": lambda: devwidget.simulate(2),
}
SMALL = (64, 96, 128)
"""Widths of the images that are tried before the model's own."""


def main() -> None:
    names = sys.argv[1:] or (HERE / "timm_smallest.txt").read_text(encoding="utf-8").split()
    counts: Counter[str] = Counter()
    for name in names:
        found = _ask_child(name)
        counts.update(
            f"{step}, {way}: {'identical' if text == '' else 'differ or failed'}" for (step, way), text in found.items()
        )
        told = "; ".join(f"{step}, {way}: {text}" for (step, way), text in found.items() if text)
        print(f"{name}: {told or 'identical'}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{what}: {count} of {len(names)}")


def _ask_child(name: str) -> dict[tuple[str, str], str]:
    """What differs by step and way; "" where nothing does."""
    command = [sys.executable, __file__, "--child", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            said, errors = child.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            child.kill()
            said, errors = child.communicate()[0], f"no answer in {LONGEST_S} s"
    told = {(step, way): text for step, way, text in map(json.loads, said.splitlines())}
    missing = ((errors or "").strip().splitlines() or ["died"])[-1]
    return {(step, way): told.get((step, way), missing) for step in STEPS for way in WATCHED}


def _compare(name: str) -> None:
    """In the child: a line for each step and way, once it is known."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    model, width = _small_model(name)
    for step, (batch, is_training) in STEPS.items():
        images = torch.randn(batch, 3, width, width, generator=torch.Generator().manual_seed(3))
        model.train(is_training)
        wanted = _step(model, images, "cpu")
        for way, watched in WATCHED.items():
            with watched():
                found = _step(model, images, "cuda:0" if way == "simulate" else "cpu")
            kinds = zip(("output", "gradient"), map(difference, found, wanted), strict=True)
            print(json.dumps([step, way, next((f"{kind} {text}" for kind, text in kinds if text), "")]), flush=True)


def _small_model(name: str) -> tuple[torch.nn.Module, int]:
    """The model at the least width of images with which it runs a batch of two."""
    from run import declare_nms

    declare_nms()
    import timm

    own = timm.models.get_pretrained_cfg(name).input_size[-1]
    for options, width in [({"img_size": each}, each) for each in SMALL] + [({}, each) for each in (*SMALL, own)]:
        torch.manual_seed(0)
        with contextlib.suppress(Exception):  # no such option, or too narrow for its layers
            model = timm.create_model(name, **options)
            with torch.no_grad():
                copy.deepcopy(model)(torch.zeros(2, 3, width, width))
            return model, width
    raise SystemExit("runs at no width")


def _step(model: torch.nn.Module, images: torch.Tensor, device: str) -> tuple[list[Any], list[Any]]:
    """Outputs, and gradients of the images and of all parameters."""
    model, images = copy.deepcopy(model).to(device), images.clone().to(device).requires_grad_()
    torch.manual_seed(1)
    outputs = tensors(model(images))
    roots = [each for each in outputs if each.requires_grad]
    torch.stack([each.square().mean() for each in roots]).sum().backward()
    return [each.detach() for each in outputs], [images.grad, *(parameter.grad for parameter in model.parameters())]


if __name__ == "__main__":
    _compare(sys.argv[2]) if sys.argv[1:2] == ["--child"] else main()
