"""WORDS: findings and views -> text, data frames and HTML, without any widget library.

Importing this package teaches the records how to print, how to become data frames, and how to become HTML.
"""

from devwidget.report import all_texts, frames
from devwidget.report.page import html
from devwidget.report.page.answers import comparison_html, plan_html, what_if_html
from devwidget.report.page.ranks import page as ranks_page
from devwidget.report.page.ranks import pipeline_html

__all__ = ["all_texts", "comparison_html", "frames", "html", "pipeline_html", "plan_html", "ranks_page", "what_if_html"]
