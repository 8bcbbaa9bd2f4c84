"""How long a slider of the page of a plan takes to answer: it is moved in Chromium, from the event to the next frame.

python benchmarks/plan_sliders.py
"""

from __future__ import annotations

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

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


def sliders() -> None:
    """One move of a slider of a page whose plan was asked for other sizes, cards and changes."""
    from tests.browser.chromium import launched
    from tests.extras.browser.test_plan_sliders import LivePage, plan_asked

    with launched() as browser:
        live = LivePage(browser, plan_asked())
        filled, drawn = live.page.evaluate(MOVE, MOVES)
        live.close()
    print(f"a slider, {MOVES} moves: filled in after {statistics.median(filled):.1f} ms, at most {max(filled):.1f} ms; "
          f"on the screen after {statistics.median(drawn):.0f} ms, at most {max(drawn):.0f} ms")  # fmt: skip


if __name__ == "__main__":
    sliders()
