"""What virtual GPUs cost, alone and recorded: user CPU time of a training step against the plain CPU; and a model of 70
billion parameters.

    python benchmarks/simulator_cost.py [--rounds 7] [--json FILE]

One thread. Each round times the plain step, a step under a dispatch mode that does nothing (the floor for anything that
follows operators from Python) and the step on a virtual GPU, in turns; the table shows the median ratio of the rounds.
The loop of small steps, with its optimizer and the data of each step, is timed inside a recording too, on the CPU and on
the virtual GPU; its floor there is a simulation with a function mode and a dispatch mode beside it that do nothing.

Measured with torch 2.13 on a shared machine with two cores, seven rounds:

    llama-70b over 8 x 80 GiB: placed in 2.5 s, step 4.3 s, resident 0.40 GiB
    gpt2 small, 1 x 128        plain   1690.00 ms   bare mode  0.93 x   virtual GPU  1.04 x   goal 1.10 x
    thin gpt2, launch-bound    plain     12.75 ms   bare mode  1.98 x   virtual GPU  2.98 x   goal 4.00 x
    mlp, four layers           plain      0.23 ms   bare mode  2.80 x   virtual GPU  3.80 x   goal 8.00 x

and of the last row, with twelve rounds of processor time beside other work, the floor with five at another time:

    small steps, GRU and Adam  plain      1.54 ms   recorded   4.58 x   virtual GPU  3.93 x   both  7.20 x
                               floor of both  4.31 x   goal 5.00 x
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import pathlib
import resource
import statistics
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from accelerate import dispatch_model
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import devwidget
from devwidget.capture.patching.mode_stack import DispatchMode, EndedDispatchMode, EndedFunctionMode, FunctionMode
from devwidget.gpus import simulate

GOALS = {"gpt2 small, 1 x 128": 1.10, "thin gpt2, launch-bound": 4.0, "mlp, four layers": 8.0}
SMALL_STEPS, BOTH_GOAL = "small steps, GRU and Adam", 5.0
"""Steps of a millisecond or two, where the price of each operator is all that counts."""


class Nothing(TorchDispatchMode):
    """The cheapest mode there is."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class NothingBelow(DispatchMode):
    """One of ours that does nothing; it stays when others begin, as one that has ended does not."""

    __torch_dispatch__ = EndedDispatchMode.__torch_dispatch__


class NothingAbove(FunctionMode):
    """The same above autograd."""

    __torch_function__ = EndedFunctionMode.__torch_function__


def mlp():
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(8, 16), 2000


def thin():
    sizes = {"vocab_size": 128, "n_embd": 32, "n_layer": 12, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config).eval(), torch.randint(0, 100, (1, 8)), 40


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval(), torch.randint(0, 100, (1, 128)), 1


def step(model, x):
    """Forward and backward."""
    out = model(x)
    (out if isinstance(out, torch.Tensor) else out.logits).sum().backward()
    model.zero_grad()


def cpu_seconds(model, x, times):
    """User time of a step: system time is that of page faults, which vary with the load of the machine, not with the mode."""
    step(model, x)
    started = os.times().user
    for _ in range(times):
        step(model, x)
    return (os.times().user - started) / times


def one_round(model, x, times):
    """Ratios of the bare mode and of the simulation, and seconds of the plain step."""
    plain = cpu_seconds(model, x, times)
    with Nothing():
        bare = cpu_seconds(model, x, times)
    with simulate(1):
        simulated = cpu_seconds(copy.deepcopy(model).cuda(), x.cuda(), times)
    return bare / plain, simulated / plain, plain


def measure(build, rounds):
    model, x, times = build()
    columns = zip(*(one_round(model, x, times) for _ in range(rounds)), strict=True)
    return dict(zip(("bare_mode_ratio", "simulated_ratio", "plain_seconds"), map(statistics.median, columns), strict=True))


def small_steps(device, times=200):
    """Processor time of one step of a loop that trains a small GRU, seconds."""
    torch.manual_seed(0)
    model = nn.GRU(16, 16).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(times + 3):
        if number == 3:
            started = time.process_time()
        x = torch.zeros(6, 1, 16).to(device)
        for i in range(6):
            x[i][0][i] = 1
        loss = model(x)[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.process_time() - started) / times


def round_of_small_steps():
    """Seconds of the same plain, and ratios of it recorded, simulated, both, and of the floor of both."""
    plain = small_steps("cpu")
    with devwidget.record():
        recorded = small_steps("cpu")
    with simulate(1):
        simulated = small_steps("cuda")
    with simulate(1), devwidget.record():
        both = small_steps("cuda")
    with simulate(1), NothingAbove(), NothingBelow():
        floor = small_steps("cuda")
    return plain, recorded / plain, simulated / plain, both / plain, floor / plain


def measure_small_steps(rounds):
    columns = zip(*(round_of_small_steps() for _ in range(rounds)), strict=True)
    names = ("plain_seconds", "recorded_ratio", "simulated_ratio", "both_ratio", "floor_ratio")
    return dict(zip(names, map(statistics.median, columns), strict=True))


def llama_70b():
    """Place llama-70b on eight GPUs of 80 GiB without values, and run a training step of 1 x 128 tokens."""
    config = transformers.LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
    )
    places = {f"model.layers.{number}": number // 10 for number in range(80)}
    places |= {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.norm": 7, "lm_head": 7}
    started = time.perf_counter()
    with simulate(8, "80GiB", compute=False):
        model = dispatch_model(transformers.LlamaForCausalLM(config).bfloat16(), places, main_device=0)
        placed = time.perf_counter()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ids = torch.randint(0, 1000, (1, 128), device="cuda:0")
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        peaks = [torch.cuda.max_memory_allocated(index) / 2**30 for index in range(8)]
    return {
        "place_seconds": placed - started,
        "step_seconds": time.perf_counter() - placed,
        "resident_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "peak_gib": peaks,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {"llama-70b": llama_70b()}  # first: the highest resident size of the process counts
    print("llama-70b over 8 x 80 GiB: placed in {place_seconds:.1f} s, step {step_seconds:.1f} s, "
          "resident {resident_gib:.2f} GiB".format(**results["llama-70b"]))  # fmt: skip
    for (name, goal), build in zip(GOALS.items(), (gpt2, thin, mlp), strict=True):
        results[name] = row = measure(build, options.rounds)
        print(f"{name:26} plain {row['plain_seconds'] * 1e3:9.2f} ms   bare mode {row['bare_mode_ratio']:5.2f} x   "
              f"virtual GPU {row['simulated_ratio']:5.2f} x   goal {goal:.2f} x", flush=True)  # fmt: skip
    results[SMALL_STEPS] = row = measure_small_steps(options.rounds)
    print(f"{SMALL_STEPS:26} plain {row['plain_seconds'] * 1e3:9.2f} ms   recorded  {row['recorded_ratio']:5.2f} x   "
          f"virtual GPU {row['simulated_ratio']:5.2f} x   both {row['both_ratio']:5.2f} x   "
          f"floor of both {row['floor_ratio']:5.2f} x   goal {BOTH_GOAL:.2f} x")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
