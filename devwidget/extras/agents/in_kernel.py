"""The half of the tools that runs in the kernel, where the notebook's variables are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devwidget import api
from devwidget.extras.agents.try_edit import try_edit
from devwidget.live_model import evaluate_in_notebook
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.record import Record


def answer(question: str, texts: Mapping[str, str]) -> str:
    """Return the answer to a tool in at most 2,000 characters.

    Args:
        question: `explain`, `trace` or `try_edit`.
        texts: expressions for the arguments of the step, and the diff.
    """
    try:
        return _find_answer(question, dict(texts))._repr_llm_()
    except DevwidgetError as error:
        return str(error)


def _find_answer(question: str, texts: dict[str, str]) -> Record:
    if question == "explain":
        return api.explain()
    diff = texts.pop("diff", "")
    step: dict[str, Any] = {name: evaluate_in_notebook(text, name) for name, text in texts.items() if text.strip()}
    if question == "try_edit":
        return try_edit(diff, **step)
    return api.trace(**step, name=texts["model"].strip())
