"""The page of what was seen on a card: `python -m tests.gpu.report` writes it from what the tests have noted.

The tests run in several processes, so that each adds lines to one file, which the page is made of at the end.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform

import torch

FOLDER = pathlib.Path(os.environ.get("GPU_REPORT", pathlib.Path(__file__).resolve().parents[2] / "artifacts" / "gpu"))
NOTES = FOLDER / "notes.jsonl"
PAGE = FOLDER / "report.md"


def note(part: str, text: str, **figures: object) -> None:
    """Add a line to a part of the report; figures are kept as they are, for tables that are made later."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(json.dumps({"part": part, "text": text, **figures}) + "\n")


def write_page() -> str:
    """The page, by part."""
    notes = [json.loads(line) for line in NOTES.read_text(encoding="utf-8").splitlines()] if NOTES.exists() else []
    parts = dict.fromkeys(each["part"] for each in notes)
    lines = [f"# {describe_machine()}", ""]
    for part in parts:
        lines += [f"## {part}", "", *(f"* {each['text']}" for each in notes if each["part"] == part), ""]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    return "\n".join(lines)


def describe_machine() -> str:
    """What the figures are of."""
    cards = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    kind = ", ".join(cards) or "virtual GPUs that do not say so"
    return f"{kind}; torch {torch.__version__}, Python {platform.python_version()}"


if __name__ == "__main__":
    print(write_page())
