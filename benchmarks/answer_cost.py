"""What people wait for: from the click to a finding and to a fix that was tried, `why` after an exception, a first trace,
a page, a panel, a plan, a layout, a script and a suite of tests.

    python benchmarks/answer_cost.py [clicks] [why] [cold] [pages] [panels] [plans] [scripts] [plugin]

Clicks are counted in steps of the model: a forward, its loss and its backward on the same virtual GPU, in turns, processor
time of one thread, each after a collection: a pass of Python's collector through all that is imported takes ten steps of a
thin model, and falls to whatever call comes when it is due. Scripts and suites are processes of their own, with all that they
start.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from snapshot_cost import tree
from torch import nn
from workloads import WORKLOADS

import devwidget

CLICKED = ("GPT-2 small, 1 x 128", "thin GPT-2, launch-bound", "llama, 48 thin layers")
FAULTS, CELLS, TESTS = 10, 200, 1_000
ROUNDS = 5
LLAMAS = {"1B": (2048, 8192, 16, 32, 128256), "7B": (4096, 11008, 32, 32, 32000), "70B": (8192, 28672, 80, 64, 32000)}
"""Width, width inside, layers, heads and words of models that are planned; but for 7B eight heads of keys."""
LONGEST_S = 20.0
"""Processor time after which no further round of clicks begins."""
SCRIPT = "import torch\nmodel = torch.nn.Linear(8, 8)\nfor _ in range(20):\n    model(torch.randn(2, 8)).sum().backward()\n"
COLD = """
import time, torch, devwidget
model, x = torch.nn.Linear(8, 8), torch.randn(2, 8)
model(x).sum().backward()
began = time.process_time()
devwidget.trace(model, x, loss_fn=torch.sum)
cold = time.process_time() - began
began = time.process_time()
devwidget.trace(model, x, loss_fn=torch.sum)
print(cold, time.process_time() - began)
"""


class Clean(nn.Module):
    """A language model whose positions are given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        spots = torch.arange(ids.shape[1], device=ids.device)
        return self.inner(input_ids=ids, position_ids=spots[None]).logits


class Faulty(Clean):
    """The same with positions that are made on the CPU."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        spots = torch.arange(ids.shape[1])
        return self.inner(input_ids=ids, position_ids=spots[None]).logits


class FaultyTenTimes(Clean):
    """Ten lines that make a tensor on the CPU."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = super().forward(ids)
        x = x + torch.zeros(x.shape[-1])
        x = x * torch.ones(x.shape[-1])
        x = x - torch.zeros(x.shape[-1])
        x = x / torch.ones(x.shape[-1])
        x = x + torch.zeros(1)
        x = x * torch.ones(1)
        x = x - torch.zeros(1)
        x = x / torch.ones(1)
        x = x + torch.zeros(x.shape[1], 1)
        return x * torch.ones(x.shape[1], 1)


def cpu_seconds(run: Callable[[], object]) -> float:
    """Processor time of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def clicks(model: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Steps of the model that a trace takes: clean, with one fault, with its fix tried, with ten of both, and with AdamW."""
    load = WORKLOADS[model]()
    with devwidget.simulate(gpus=1, memory="64GiB"):
        inner, ids = load.model.cuda(), load.batch[0].cuda()
        clean, faulty, ten = Clean(inner), Faulty(inner), FaultyTenTimes(inner)
        optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-6)

        def step() -> None:
            clean(ids).sum().backward()
            clean.zero_grad()

        def update() -> None:
            clean(ids).sum().backward()
            optimizer.step()
            clean.zero_grad()

        def traced(subject: nn.Module, count: int, *, verify: bool = True, **options: Any) -> Callable[[], None]:
            def run() -> None:
                found = devwidget.trace(subject, ids, loss_fn=torch.sum, verify=verify, **options).findings
                if len(found) != count or any(verify and not each.fixes[0].verified for each in found):
                    raise SystemExit(f"{count} findings with verified fixes expected: {found}")

            return run

        calls = {
            "clean": traced(clean, 0),
            "fault": traced(faulty, 1, verify=False),
            "tried": traced(faulty, 1),
            "ten faults": traced(ten, FAULTS, verify=False),
            "ten tried": traced(ten, FAULTS),
            "tried, AdamW": traced(faulty, 1, optimizer=optimizer),
        }
        most: dict[str, float] = {}
        for name, call in {"step": step, **calls, "update": update}.items():
            call()
            most[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        ratios: dict[str, list[float]] = {name: [] for name in calls}
        plain: list[float] = []
        began = time.process_time()
        for _ in range(rounds):
            if plain and time.process_time() - began > LONGEST_S:
                break
            for name, call in calls.items():
                gc.collect()
                own = step if name != "tried, AdamW" else update
                least = min(cpu_seconds(own), cpu_seconds(own))
                plain += [least] if own is step else []
                ratios[name].append(cpu_seconds(call) / least)
    beyond = {f"{name} bytes": most[name] - most["step"] for name in ("clean", "tried")}
    return {name: statistics.median(each) for name, each in ratios.items()} | {"step": statistics.median(plain)} | beyond


def why(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds of `%devwidget why` in a notebook of 200 cells, after an exception in the last."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    with devwidget.simulate(gpus=1), contextlib.redirect_stdout(io.StringIO()) as out:
        shell.run_cell("%load_ext devwidget\nimport torch\nmodel = torch.nn.Linear(4, 4).cuda()")
        for number in range(CELLS):
            shell.run_cell(f"def f{number}(x):\n    y = x + {number}\n    return y\nx{number} = f{number}(torch.zeros(4))")
        shell.run_cell("model(x7)")
        taken = [cpu_seconds(lambda: shell.run_cell("%devwidget why")) for _ in range(1 + rounds)]
    if "x7" not in out.getvalue():
        raise SystemExit(f"why did not name x7:\n{out.getvalue()[-2000:]}")
    return {"first": taken[0], "why": statistics.median(taken[1:])}


def cold(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds of the first trace in a process, and of the second."""
    told = [subprocess.check_output([sys.executable, "-c", COLD], text=True).split() for _ in range(rounds)]
    first, second = (statistics.median(map(float, each)) for each in zip(*told, strict=True))
    return {"first": first, "second": second}


def pages(rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds and bytes of the page of a trace of GPT-2 small."""
    load = WORKLOADS[CLICKED[0]]()
    trace = devwidget.trace(load.model, *load.batch)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "trace.html"
        taken = [cpu_seconds(lambda: trace.to_html(page)) for _ in range(1 + rounds)]
        return {"html": statistics.median(taken[1:]), "bytes": page.stat().st_size}


def panels(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds in the kernel until the panel of a live model can be sent: of GPT-2 small, and of 10,000 modules."""

    def opened(model: nn.Module) -> float:
        def run() -> None:
            devwidget.show(model).close()

        run()
        return statistics.median(cpu_seconds(run) for _ in range(rounds))

    return {"GPT-2": opened(WORKLOADS[CLICKED[0]]().model), "10,000": opened(tree(10_000))}


def plans(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds of plans of a step with AdamW, and of layouts over two cards, of models on meta; each run once."""
    from transformers import LlamaConfig, LlamaForCausalLM

    models = {}
    for name, (width, inner, layers, heads, words) in LLAMAS.items():
        sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "vocab_size": words}
        config = LlamaConfig(**sizes, num_attention_heads=heads, num_key_value_heads=32 if name == "7B" else 8)
        with torch.device("meta"):
            models[name] = LlamaForCausalLM(config).bfloat16()
    ids = torch.ones(1, 2048, dtype=torch.long)

    def plan(name: str) -> object:
        return devwidget.plan(models[name], {"input_ids": ids, "labels": ids}, optimizer=torch.optim.AdamW, card="A100-80GB")

    @torch.no_grad()
    def place(name: str) -> object:
        return devwidget.place(models[name], {"input_ids": ids}, gpus=2, card="A100-80GB")

    asked = ((plan, "1B"), (plan, "7B"), (place, "7B"), (place, "70B"))
    return {f"{call.__name__} {name}": cpu_seconds(lambda: call(name)) for call, name in asked}  # noqa: B023  called at once


def _child_seconds(*arguments: str, cwd: str) -> float:
    """Processor seconds of a process and of all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _in_turns(plain: tuple[str, ...], ours: tuple[str, ...], folder: str, rounds: int) -> dict[str, float]:
    pairs = [[_child_seconds(*each, cwd=folder) for each in (plain, ours)] for _ in range(rounds)]
    return dict(zip(("plain", "ours"), map(statistics.median, zip(*pairs, strict=True)), strict=True))


def scripts(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds of a short script by `python`, and by `python -m devwidget run`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(SCRIPT)
        return _in_turns(("train.py",), ("-m", "devwidget", "run", "train.py"), folder, rounds)


def plugin(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor seconds of a suite of 1,000 tests of torch, without the plugin and with it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_many.py").write_text(
            "import pytest\nimport torch\n\n"
            f"@pytest.mark.parametrize('n', range({TESTS}))\ndef test_one(n):\n    assert (torch.ones(4) * n).sum() == 4 * n\n"
        )
        asked = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
        return _in_turns((*asked, "-p", "no:devwidget.pytest_plugin"), asked, folder, rounds)


ANSWERS: dict[str, Callable[..., dict[str, float]]] = {
    "clicks": clicks,
    "why": why,
    "cold": cold,
    "pages": pages,
    "panels": panels,
    "plans": plans,
    "scripts": scripts,
    "plugin": plugin,
}
"""What `figure.py answer` is asked for; `clicks` of one model."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[[], *ANSWERS], help="all, if nothing is named")
    torch.set_num_threads(1)
    for name in parser.parse_args().what or ANSWERS:
        for model in CLICKED if name == "clicks" else [""]:
            figures = ANSWERS[name](*filter(None, [model]))
            print(name, model, json.dumps({key: round(value, 4) for key, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
