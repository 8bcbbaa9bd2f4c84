"""Holds virtual GPUs against real CUDA: mixed-device calls over torch's own operator samples, and whole programs.

    python tests/gpu/compare_with_cuda.py record cuda.json      # on a machine with a CUDA build of torch and a GPU
    python tests/gpu/compare_with_cuda.py record virtual.json   # without one: the same sweep on virtual GPUs
    python tests/gpu/compare_with_cuda.py compare cuda.json virtual.json

`record` calls every operator of torch's op_db with one tensor argument left on the CPU, each in turn, and the programs
of a folder of placement cases; it notes the device of the result, or the type and first line of the error. `compare`
lists where the two disagree. Without `cuda.json` nothing is known of the real thing: the virtual sweep alone only shows
that no call aborts the process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import pathlib
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
CASES = pathlib.Path(__file__).parents[1] / "corpus"


def outcome(call):
    """The devices of the result, or the error."""
    try:
        result = call()
    except Exception as error:  # whatever the operator raises is what is compared
        return {"raises": type(error).__name__, "text": str(error).split("\n")[0][:300]}
    devices = [str(leaf.device) for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
    return {"devices": devices}


def mixtures(sample):
    """The arguments of a sample with one tensor after the other left on the CPU, the others on the GPU; then the reverse."""
    leaves, spec = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if len(places) < 2:
        return
    for stray in places:
        for home, other in (("cuda:0", "cpu"), ("cpu", "cuda:0")):
            moved = [
                leaf.detach().to(other if place == stray else home) if place in places else leaf
                for place, leaf in enumerate(leaves)
            ]
            yield f"argument {stray} on {other}", tree_unflatten(moved, spec)


def sweep_operators(most_samples):
    found = {}
    for operator in op_db:
        if torch.float32 not in operator.dtypes:
            continue
        name = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        with contextlib.suppress(Exception):  # some samples need packages that are not here
            for number, sample in enumerate(operator.sample_inputs("cpu", torch.float32)):
                if number >= most_samples:
                    break
                for what, (args, kwargs) in mixtures(sample):
                    found[f"{name}[{number}], {what}"] = outcome(lambda a=args, k=kwargs, o=operator: o.op(*a, **k))
    return found


def run_case(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parts = module.build()
    out = parts["model"](*parts.get("args", ()), **parts.get("kwargs", {}))
    loss = parts["loss_fn"](out, parts.get("target")) if parts.get("loss_fn") else out
    if parts.get("backward", parts.get("loss_fn") is not None):
        loss.backward()
    if parts.get("optimizer"):
        parts["optimizer"].step()
    return loss


def sweep_cases(gpus):
    found = {}
    for path in sorted(CASES.glob("case_*.py")):
        if f"GPUS = {gpus}" in path.read_text():
            found[path.stem] = outcome(lambda p=path: run_case(p))
    return found


def record(target, most_samples):
    torch.manual_seed(0)
    real = torch.cuda.is_available()
    found = {"torch": torch.__version__, "real": real, "operators": {}, "cases": {}}
    for gpus in (1, 2, 4):
        if real and torch.cuda.device_count() < gpus:
            continue
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            warnings.simplefilter("ignore")
            if not real:
                from devwidget.simulator import simulate

                stack.enter_context(simulate(gpus))
            if gpus == 1:
                found["operators"] = sweep_operators(most_samples)
            found["cases"] |= sweep_cases(gpus)
    target.write_text(json.dumps(found, indent=1))
    raised = sum("raises" in answer for answer in found["operators"].values())
    kind = "real CUDA" if real else "virtual GPUs, nothing compared"
    print(f"{kind}: {len(found['operators'])} mixed calls, {raised} raised; {len(found['cases'])} programs")


def compare(left, right):
    one, two = json.loads(left.read_text()), json.loads(right.read_text())
    differing = {"raises or not": 0, "devices": 0, "error type": 0, "error text": 0}
    for part in ("operators", "cases"):
        for name in one[part].keys() & two[part].keys():
            a, b = one[part][name], two[part][name]
            kind = (
                "raises or not" if ("raises" in a) != ("raises" in b)
                else "devices" if a.get("devices") != b.get("devices")
                else "error type" if a.get("raises") != b.get("raises")
                else "error text" if a.get("text") != b.get("text")
                else None
            )  # fmt: skip
            if kind:
                differing[kind] += 1
                print(f"{kind}: {part} {name}\n   {a}\n   {b}")
    print(", ".join(f"{kind}: {count}" for kind, count in differing.items()))
    return 1 if differing["raises or not"] or differing["devices"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("target", type=pathlib.Path)
    recording.add_argument("--samples", type=int, default=2)
    comparing = commands.add_parser("compare")
    comparing.add_argument("left", type=pathlib.Path)
    comparing.add_argument("right", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "record":
        return record(options.target, options.samples)
    return compare(options.left, options.right)


if __name__ == "__main__":
    sys.exit(main())
