"""What jobs give to virtual GPUs: processes that inherit them, and groups of processes that have NCCL."""

import torch

from devwidget.extras.jobs import children, collectives
from devwidget.gpus.parts import PARTS
from devwidget.gpus.patching import Patches
from devwidget.gpus.torch_internals import FUNCTIONAL_COLLECTIVES
from devwidget.gpus.virtual_machine import VirtualMachine


def install_groups(patches: Patches, machine: VirtualMachine) -> None:
    """Connect processes, where torch is built to."""
    if torch.distributed.is_available() and torch.distributed.is_gloo_available():
        # Late: it derives from a class that not every torch has.
        from devwidget.extras.jobs import data_parallel, nccl

        nccl.install_nccl(patches)
        data_parallel.install_data_parallel(patches)


PARTS.installs += [children.install_inheritance, install_groups]
PARTS.special["c10d"] = collectives.run_in_group
PARTS.take_apart[FUNCTIONAL_COLLECTIVES] = collectives.find_parts
PARTS.connects_processes = True
