"""WORDS: findings and views -> text, data frames and HTML, without any widget library.

Importing this package teaches the records how to print, how to become data frames, and how to become HTML.
"""

from devwidget.report import frames, html, plan_html, text

__all__ = ["frames", "html", "plan_html", "text"]
