"""A tensor hook returns its gradient on the CPU."""
import torch
from torch import nn

GPUS = 1


def clip(grad):
    return grad.cpu().clamp(-1, 1)  # BIRTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.lin(x)  # FAULT
        hidden.register_hook(clip)  # HOOK
        return hidden.relu()


def build():
    model = Net().cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', module_alt=['lin'], fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', '.cuda()', 'without .cpu()', 'device'], severity='error', fatal=True),
]
RAISES = r"hook 'clip' has changed the type of value"
