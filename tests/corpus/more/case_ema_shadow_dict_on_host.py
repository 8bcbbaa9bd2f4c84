"""An exponential moving average keeps a dict of clones that were taken before the model moved."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Ema:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}  # BIRTH

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 3)  # MADE

    def forward(self, x):
        return self.read(x)


def build():
    model = Net()
    ema = Ema(model)
    model.cuda()

    def loss_fn(out, y):
        loss = F.cross_entropy(out, y)
        ema.update(model)
        return loss

    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 2]).cuda(), loss_fn=loss_fn)


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# MADE'],
         fix_contains=['.to('], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
