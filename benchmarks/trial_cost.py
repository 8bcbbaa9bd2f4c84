"""What trying a fix costs: CPU time of `devwidget.trace` with one trial, against the same trace with `verify=False`.

    python benchmarks/trial_cost.py [--quick]

One thread, one virtual GPU; traces with and without a trial alternate, and the medians are compared. A trial runs the step
twice, and so does what it is held against, once for a trace: the floor is a share of 4.0 of the traced step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import nn

import devwidget

GOAL = 6.0
"""A trial costs two steps, and two with everything on one device; and what putting the edit in place takes."""


class Positions(nn.Module):
    """A GPT-2 whose positions are made on the CPU in every forward: an edit of a function."""

    def __init__(self, config: Any) -> None:
        from transformers import GPT2LMHeadModel

        super().__init__()
        self.inner = GPT2LMHeadModel(config)

    def forward(self, ids: torch.Tensor) -> Any:
        """Logits."""
        spots = torch.arange(ids.shape[1])
        return self.inner(input_ids=ids, position_ids=spots[None]).logits


class Scaled(Positions):
    """The same with a tensor in a plain attribute: an edit of a constructor."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.vocab_size, 2)
        self.scale = torch.full((2,), 2.0)

    def forward(self, ids: torch.Tensor) -> Any:
        """Two numbers for each token."""
        return self.head(self.inner(input_ids=ids).logits) * self.scale


def seconds(model: nn.Module, ids: torch.Tensor, *, verify: bool) -> float:
    """Processor time of one trace, backward included."""
    started = time.process_time()
    trace = devwidget.trace(model, ids, loss_fn=torch.sum, verify=verify)
    taken = time.process_time() - started
    verified = [finding.fixes[0].verified for finding in trace.findings]
    if verified != [verify]:
        raise SystemExit(f"expected one finding, with a verified fix only where fixes are tried: {verified}")
    return taken


def main() -> None:
    from transformers import GPT2Config

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    thin = GPT2Config(vocab_size=128, n_embd=32, n_layer=12, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
    sizes = {"thin GPT-2": (thin, (1, 8))} | ({} if quick else {"GPT-2 small": (GPT2Config(), (1, 128))})
    print(f"{'model':>12} {'edit of':>12} {'trace':>10} {'one trial':>10} {'of the trace':>13}   goal {GOAL}")
    with devwidget.simulate(gpus=1, memory="64GiB"):
        for name, (config, shape) in sizes.items():
            for place, make in (("forward", Positions), ("constructor", Scaled)):
                model, ids = make(config).to("cuda:0"), torch.randint(0, 100, shape, device="cuda:0")
                seconds(model, ids, verify=True)
                pairs = [[seconds(model, ids, verify=verify) for verify in (False, True)] for _ in range(3 if quick else 7)]
                plain, tried = map(statistics.median, zip(*pairs, strict=True))
                print(
                    f"{name:>12} {place:>12} {plain * 1e3:>7.0f} ms {(tried - plain) * 1e3:>7.0f} ms {tried / plain - 1:>13.2f}"
                )


if __name__ == "__main__":
    main()
