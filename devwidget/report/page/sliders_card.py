"""What sliders over a plan show: the plans that were run, as numbers to be filled in between, and what was run in words."""

from __future__ import annotations

from typing import Any

from devwidget.records.answers.fitted import BATCH_KNOTS, LENGTH_KNOTS, Fitted
from devwidget.report.style.safe_text import displayed
from devwidget.report.style.units import counted


@displayed
def sliders_content(fitted: Fitted) -> dict[str, Any]:
    """The state of the widget."""
    on = f" on {fitted.card}" if fitted.card else ""
    return {
        "title": f"{fitted.model}{on}: what a step takes",
        "batches": list(fitted.batches),
        "lengths": list(fitted.lengths),
        "asked": list(fitted.asked),
        "knots": [BATCH_KNOTS, LENGTH_KNOTS],
        "gpus": [{"device": str(gpu.device), "capacity": gpu.capacity, "taken": list(gpu.taken)} for gpu in fitted.gpus],
        "words": sliders_words(fitted),
    }


def sliders_words(fitted: Fitted) -> str:
    """Which plans were run, and how far what is told between them is off."""
    texts = f" and texts of {_listed(fitted.lengths)}" if len(fitted.lengths) > 1 else ""
    run = len(fitted.batches) * len(fitted.lengths)
    checked = f"; {fitted.checked} more in between: the fit was at most {fitted.off:.1%} off" if fitted.checked else ""
    return f"{counted(run, 'plan')} run, for batches of {_listed(fitted.batches)}{texts}{checked}."


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
