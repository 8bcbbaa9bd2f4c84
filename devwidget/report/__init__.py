"""WORDS: findings and views -> text, data frames and HTML, without any widget library.

Importing this package teaches the records how to print, how to become data frames, and how to become HTML.
"""

from devwidget.extras.plan.page import draw_plan, place
from devwidget.extras.plan.words import plan, questions
from devwidget.extras.ranks import page as ranks
from devwidget.extras.ranks.words import cluster as cluster_text
from devwidget.extras.watch.words import job as watched_job
from devwidget.extras.watch.words import run as watched_run
from devwidget.report import data_frames
from devwidget.report.page import html
from devwidget.report.text import comparison, finding_text, snapshot_text, trace_text

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
