"""`torch.no_grad` for our own reading, whose end is made up for if a signal or an exception cuts it short."""

from __future__ import annotations

import torch

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import sure_exit


class no_gradients:
    """`with no_gradients(): ...`: grad mode is what it was afterwards, whatever strikes on the way out."""

    inside = False

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        self.inside = True
        torch_internals.set_grad_enabled(False)

    @sure_exit
    def __exit__(self, *exc_info: object) -> None:
        torch_internals.set_grad_enabled(self._before)
