"""An optimizer of the user makes its momentum on the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group['params']:
                state = self.state[p]
                if 'speed' not in state:
                    state['speed'] = torch.zeros(p.shape)  # BIRTH
                state['speed'].mul_(0.9).add_(p.grad)  # FAULT
                p.sub_(group['lr'] * state['speed'])


def build():
    model = nn.Linear(4, 2).to('cuda:0')
    return dict(model=model, args=(torch.randn(3, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum(), optimizer=Momentum(model.parameters()))


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH', fix_contains=['device=', '.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
