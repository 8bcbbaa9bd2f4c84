"""WORDS: findings and views -> text, data frames and HTML, without any widget library.

Importing this package teaches the records of the core how to print, how to become data frames, and how to become HTML.
"""

from devwidget.report import data_frames
from devwidget.report.figures import as_plotly
from devwidget.report.page import html
from devwidget.report.text import comparison, finding_text, snapshot_text, trace_text

__all__ = ["as_plotly", "comparison", "data_frames", "finding_text", "html", "snapshot_text", "trace_text"]
