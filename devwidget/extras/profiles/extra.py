"""Which files of other tools are read."""

from devwidget.extras import Extra

EXTRA = Extra(files=("kineto", "memory_snapshot"))
