"""An optimizer of the user with state like its parameters."""
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
                    state['speed'], state['step'] = torch.zeros_like(p), torch.zeros(())
                state['step'] += 1
                state['speed'].mul_(0.9).add_(p.grad)
                p.sub_(group['lr'] * state['speed'] / state['step'])


def build():
    model = nn.Linear(4, 2).to('cuda:0')
    return dict(model=model, args=(torch.randn(3, 4, device='cuda:0'),), loss_fn=lambda out, _: out.sum(), optimizer=Momentum(model.parameters()))


EXPECT = [
]
RAISES = None
