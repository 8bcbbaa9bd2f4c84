"""WORDS: findings and views -> text, data frames and HTML, without any widget library.

Importing this package teaches the records how to print, how to become data frames, and how to become HTML.
"""

from devwidget.report import data_frames
from devwidget.report.answers import comparison, plan, questions, watched_job, watched_run
from devwidget.report.page import html, ranks
from devwidget.report.page.plan import draw_plan, place
from devwidget.report.text import cluster_text, finding_text, snapshot_text, trace_text

__all__ = [
    "cluster_text",
    "comparison",
    "data_frames",
    "draw_plan",
    "finding_text",
    "html",
    "place",
    "plan",
    "questions",
    "ranks",
    "snapshot_text",
    "trace_text",
    "watched_job",
    "watched_run",
]
