"""What cards offer."""

from devwidget.extras import Extra

EXTRA = Extra(gpus=("part",))
