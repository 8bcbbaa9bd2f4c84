"""Labels left on the CPU with a loss of torch: no line of the user runs below the call of the loss, the commonest report of all."""
import torch
from torch import nn

GPUS = 1
EXPECT = [
    dict(kind='wrong-device', module=None, fault_line=None, birth_line='# BIRTH', fix_contains=['device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'


def build():
    labels = torch.tensor([0, 2, 1, 0])  # BIRTH
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to('cuda:0')
    features = torch.randn(4, 8, device='cuda:0')
    return {'model': model, 'args': (features,), 'loss_fn': nn.CrossEntropyLoss(), 'target': labels}
