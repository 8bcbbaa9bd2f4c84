"""Where a program runs: on the card of this machine, or on virtual GPUs; and programs that run in processes of their own.

A process that has used a card can have no virtual GPUs any more, so that what is held against the card is asked in two.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import torch

import devwidget
from devwidget import gpus as simulator

ROOT = pathlib.Path(__file__).resolve().parents[2]
HAS_CARD = torch.cuda.is_available()
KIND = "A100-80GB"
"""Of the virtual GPU that stands for a card."""
CARD, VIRTUAL, PLAIN = "card", "virtual", "plain"


@contextlib.contextmanager
def the_card() -> Iterator[None]:
    """The real GPU; where there is none, a virtual one, and all that asks for a simulation is told that there is none."""
    if HAS_CARD:
        yield
        return
    with devwidget.simulate(1, card=KIND), mock.patch.object(simulator, "active", return_value=None):
        yield


@contextlib.contextmanager
def virtual_gpu() -> Iterator[None]:
    """A virtual GPU, on a machine with a card too."""
    with devwidget.simulate(1, card=KIND):
        yield


PLACES: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    CARD: the_card,
    VIRTUAL: virtual_gpu,
    PLAIN: contextlib.nullcontext,
}
"""`plain` is a process that uses no GPU, which is where a plan is made."""


def ask(place: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module here returns in a process of its own; arguments and answer are JSON."""
    given = [place, f"{function.__module__}:{function.__qualname__}", json.dumps(arguments)]
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu.places", *given]
    # Lists of torch's tests look for a card as they are imported, which begins to use it.
    hidden = {} if place == CARD else {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | hidden, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{function.__name__} on {place}:\n{(done.stdout + done.stderr)[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def ask_both(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """What it returns on the card, and on virtual GPUs; without a card, what those return, which would be the same twice."""
    if not HAS_CARD:
        return (ask(CARD, function, *arguments),) * 2
    with ThreadPoolExecutor(2) as threads:
        card, virtual = (threads.submit(ask, place, function, *arguments) for place in (CARD, VIRTUAL))
    return card.result(), virtual.result()


def main() -> None:
    """Answer."""
    place, named, arguments = sys.argv[1:]
    module, name = named.split(":")
    function = getattr(importlib.import_module(module), name)
    torch.set_num_threads(1)
    with PLACES[place]():
        answer = function(*json.loads(arguments))
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
