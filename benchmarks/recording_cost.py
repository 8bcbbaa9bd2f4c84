"""What recording costs: CPU time of a forward pass under `devwidget.record`, against plain PyTorch in the same run.

    python benchmarks/recording_cost.py [--quick]

One thread; plain and recorded passes alternate, the medians are compared, so a busy machine slows both alike. `bare` is the
floor: modes and module hooks that do nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import devwidget

GOALS = {"GPT-2 small, 1 x 128": 1.10, "ResNet-50, 224": 1.10, "thin GPT-2, launch-bound": 3.5, "four-layer MLP": 6.0}


def gpt2() -> Callable[[], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model, ids = GPT2LMHeadModel(GPT2Config()).eval(), torch.randint(0, 50257, (1, 128))
    return lambda: model(input_ids=ids)


def resnet50() -> Callable[[], object]:
    from transformers import ResNetConfig, ResNetForImageClassification

    model, image = ResNetForImageClassification(ResNetConfig()).eval(), torch.randn(1, 3, 224, 224)
    return lambda: model(pixel_values=image)


def thin_gpt2() -> Callable[[], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 128, "n_embd": 32, "n_layer": 12, "n_head": 4, "n_positions": 64}
    model, ids = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval(), torch.randint(0, 100, (1, 8))
    return lambda: model(input_ids=ids)


def mlp() -> Callable[[], object]:
    model, x = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))), torch.randn(2, 8)
    return lambda: model(x)


MODELS = dict(zip(GOALS, (gpt2, resnet50, thin_gpt2, mlp), strict=True))


def seconds(run: Callable[[], object], repeats: int) -> float:
    started = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - started) / repeats


class NoFunction(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class NoDispatch(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def bare() -> Iterator[None]:
    """What every recorder in Python needs, with nothing in it."""
    hooks = register_module_forward_pre_hook(lambda *_: None), register_module_forward_hook(lambda *_: None)
    try:
        with NoFunction(), NoDispatch():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def compare(run: Callable[[], object], rounds: int) -> tuple[float, float, float, devwidget.Recording]:
    """Median CPU seconds of one pass, plain, bare and recorded, and the last recording."""
    for _ in range(3):
        run()
    repeats = max(1, int(0.05 / seconds(run, 1)))
    plain, floor, recorded = [], [], []
    for _ in range(rounds):
        plain.append(seconds(run, repeats))
        with bare():
            floor.append(seconds(run, repeats))
        with devwidget.record() as recording:
            run()
            recorded.append(seconds(run, repeats))
    return statistics.median(plain), statistics.median(floor), statistics.median(recorded), recording


def bytes_per_op(run: Callable[[], object]) -> float:
    """Memory that a recording keeps for each operator of one pass, when the pass is over."""
    with devwidget.record():
        run()  # what is kept once for all recordings, such as the names of operators
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    with devwidget.record() as recording:
        run()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept / max(1, sum(op.count for op in recording.trace.ops))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 5 if parser.parse_args().quick else 15
    torch.set_num_threads(1)
    torch.manual_seed(0)
    head = f"{'':26}{'plain ms':>10}{'recorded':>10}{'bare':>8}{'ratio':>8}{'goal':>7}"
    print(f"{head}{'us/op':>8}{'ops':>7}{'calls':>7}{'B/op':>7}")
    for name, make in MODELS.items():
        run = make()
        plain, floor, recorded, recording = compare(run, rounds)
        passes = min(m.calls for m in recording.trace.modules)
        ops = sum(op.count for op in recording.trace.ops) / passes
        calls = sum(m.calls for m in recording.trace.modules) / passes
        ratio, per_op = recorded / plain, (recorded - plain) * 1e6 / ops
        timed = f"{plain * 1e3:10.3f}{recorded * 1e3:10.3f}{floor / plain:8.2f}{ratio:8.2f}{GOALS[name]:7.2f}{per_op:8.1f}"
        print(f"{name:26}{timed}{ops:7.0f}{calls:7.0f}{bytes_per_op(run):7.0f}")


if __name__ == "__main__":
    main()
