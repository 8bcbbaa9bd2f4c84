"""Phase: the parts of a training step."""

from typing import Literal

Phase = Literal["build", "forward", "loss", "backward", "optimizer", "other"]
