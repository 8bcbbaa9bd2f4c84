"""What jobs give to virtual GPUs: processes that inherit them, and groups of processes that have NCCL."""

import torch

from devwidget.extras.jobs import batch_norm, children, collectives
from devwidget.gpus.parts import PARTS
from devwidget.gpus.torch_internals import FUNCTIONAL_COLLECTIVES

if torch.distributed.is_available() and torch.distributed.is_gloo_available():
    # Only here: they derive from classes that not every torch has.
    from devwidget.extras.jobs import data_parallel as data_parallel
    from devwidget.extras.jobs import nccl

    PARTS.installs.append(nccl.install_nccl)
PARTS.installs.append(children.install_inheritance)
PARTS.special["c10d"] = collectives.run_in_group
PARTS.take_apart[FUNCTIONAL_COLLECTIVES] = collectives.find_parts
PARTS.kernels |= batch_norm.SYNCED_BATCH_NORM
PARTS.connects_processes = True
