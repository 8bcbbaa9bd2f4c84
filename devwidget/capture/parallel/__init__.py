"""nn.DataParallel: whether it can run, its four steps while it runs, and what is known of each call."""

from devwidget.capture.parallel.misplaced import first_misplaced, report_misplaced
from devwidget.capture.parallel.steps import watching

__all__ = ["first_misplaced", "report_misplaced", "watching"]
