"""Clean: values are read by hooks of the optimizer, after backward, and shapes never wait."""
import torch
from torch import nn

GPUS = 1
LOG = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        if x.shape[0] > 2 and x.is_cuda and len(x) < 100:
            x = x + 0.0
        return self.lin(x)


def build():
    model = Net().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    opt.register_step_post_hook(lambda *_: LOG.append(model.lin.weight.norm().item()))
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), loss_fn=lambda out, _: out.mean(), optimizer=opt, steps=2)


EXPECT = []
RAISES = None
