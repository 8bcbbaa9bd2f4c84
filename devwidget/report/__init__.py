"""WORDS: findings and views -> text, data frames and HTML, without any widget library.

Importing this package teaches the records how to print, how to become data frames, and how to become HTML.
"""

from devwidget.report import frames
from devwidget.report.page import answers as answers_html
from devwidget.report.page import html, ranks
from devwidget.report.text import answers, cluster_text, comparison_text, finding_text, plan_text, snapshot_text, trace_text

__all__ = [
    "answers",
    "answers_html",
    "cluster_text",
    "comparison_text",
    "finding_text",
    "frames",
    "html",
    "plan_text",
    "ranks",
    "snapshot_text",
    "trace_text",
]
