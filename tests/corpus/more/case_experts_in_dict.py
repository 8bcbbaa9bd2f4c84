"""Experts in a plain dict are not moved with the model; each expert fails."""
import torch
from torch import nn

GPUS = 1


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 2)
        self.experts = {name: nn.Linear(6, 4) for name in ('left', 'right')}  # BIRTH

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        outs = [expert(x) for expert in self.experts.values()]  # FAULT
        return (torch.stack(outs, -1) * weights.unsqueeze(1)).sum(-1)


def build():
    model = Mixture().cuda()
    return dict(model=model, args=(torch.randn(5, 6).cuda(),), loss_fn=nn.CrossEntropyLoss(),
                target=torch.randint(0, 4, (5,)).cuda())


EXPECT = [
    dict(kind='unregistered-tensor', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['ModuleDict'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
