"""The class weight of a loss object outside the model stays on the CPU."""
import torch
from torch import nn

GPUS = 1


class Loss:
    def __init__(self, weight):
        self.inner = nn.CrossEntropyLoss(weight=weight)

    def __call__(self, out, target):
        return self.inner(out, target)  # FAULT


def build():
    model = nn.Sequential(nn.Linear(4, 3)).cuda()
    balance = torch.tensor([1.0, 2.0, 4.0])  # BIRTH
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=Loss(balance), target=torch.randint(0, 3, (6,)).cuda())


EXPECT = [
    dict(kind='wrong-device', module=None, module_alt=[''], fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', '.cuda()', "device='cuda"], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
