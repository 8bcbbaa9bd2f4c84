"""Write docs/findings.md from the docstrings of the rules: python docs/build_findings.py."""

import pathlib
import sys

from devwidget.rules.registry import Rule, all_rules

PAGE = pathlib.Path(__file__).parent / "findings.md"
HEAD = """# Findings

What devwidget can find, one file of a folder in `devwidget/rules/` for each. `error`: it fails, or the result or the training
is wrong. `warning`: it costs time or memory. This page is written by `python docs/build_findings.py`.
"""


def section(rule: Rule) -> str:
    """One rule: its first sentence as text, then why, bad, good and source as a list."""
    text = sys.modules[rule.check.__module__].__doc__ or ""
    first, _, rest = text.strip().partition("\n\n")
    said = first.partition(": ")[2].replace("\n", " ")
    points = [f"* **{label}** {words.strip()}" for label, words in (line.split(":", 1) for line in _joined(rest))]
    return f"## {rule.kind}\n\n{said[0].upper()}{said[1:]}\n\n" + "\n".join(points)


def _joined(text: str) -> list[str]:
    """Lines of a docstring with those that go on put behind those that they go on from."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.split(":", 1)[0] in ("Why", "Bad", "Good", "Source"):
            lines.append(line)
        elif line.strip() and lines:
            lines[-1] += f" {line.strip()}"
    return lines


def page() -> str:
    """The whole page."""
    return "\n\n".join([HEAD.strip(), *(section(rule) for rule in all_rules())]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
