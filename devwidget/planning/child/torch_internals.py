"""The private names of torch by which a tensor that was sent is made again."""

from __future__ import annotations

import torch

conjugate_view = torch._conj
negative_view = torch._neg_view
