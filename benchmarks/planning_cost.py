"""How long two answers take: where 70 billion parameters go, and what a slider says when it is moved.

    python benchmarks/planning_cost.py [place] [sliders]

A model on meta is placed on two A100-80GB, in seconds; a slider is moved in Chromium, from the event to the next frame.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import devwidget

SIZES = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
MOVES = 100
MOVE = """async (moves) => {
  const input = document.querySelector('input[aria-label="batch"]');
  const [filled, drawn] = [[], []];
  for (let n = 0; n < moves; n++) {
    input.value = String(1 + (n * 7) % Number(input.max));
    const began = performance.now();
    input.dispatchEvent(new Event('input'));
    filled.push(performance.now() - began);
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    drawn.push(performance.now() - began);
  }
  return [filled, drawn];
}"""


def place() -> None:
    """70 billion parameters over two cards."""
    import transformers

    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=8)).bfloat16().eval()
    count, text = (
        sum(parameter.numel() for parameter in model.parameters()),
        {"input_ids": torch.ones(1, 2048, dtype=torch.long)},
    )
    began, processor = time.perf_counter(), time.process_time()
    with torch.no_grad():
        layout = devwidget.place(model, text, gpus=2, card="A100-80GB")
    took = time.perf_counter() - began, time.process_time() - processor
    fits = "fits" if layout.fits else "does not fit"
    print(f"{count / 1e9:.1f} billion parameters, {len(layout.blocks)} blocks: {fits}, {layout.hops} hops, "
          f"{took[0]:.1f} s, {took[1]:.1f} s of the processor")  # fmt: skip


def sliders() -> None:
    """One move of a slider of a page whose plan was asked for other sizes, cards and changes."""
    from tests.browser.chromium import launched
    from tests.browser.test_plan_sliders import LivePage, plan_asked

    with launched() as browser:
        live = LivePage(browser, plan_asked())
        filled, drawn = live.page.evaluate(MOVE, MOVES)
        live.close()
    print(f"a slider, {MOVES} moves: filled in after {statistics.median(filled):.1f} ms, at most {max(filled):.1f} ms; "
          f"on the screen after {statistics.median(drawn):.0f} ms, at most {max(drawn):.0f} ms")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help="place, sliders; both if nothing is named")
    known = {"place": place, "sliders": sliders}
    for name in parser.parse_args().what or known:
        known[name]()


if __name__ == "__main__":
    main()
