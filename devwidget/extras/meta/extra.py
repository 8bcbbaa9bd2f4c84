"""What `simulate(compute=False)` offers."""

from devwidget.extras import Extra

EXTRA = Extra(gpus=("part",))
