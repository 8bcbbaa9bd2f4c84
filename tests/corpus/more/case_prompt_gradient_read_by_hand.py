"""An adversarial input is moved after requires_grad: its gradient never arrives."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 2)

    def forward(self, x):
        return self.read(x)


def build():
    model = Net().cuda()
    x = torch.randn(3, 4, requires_grad=True).cuda()  # BIRTH

    def attack(out, y):
        loss = F.cross_entropy(out, y)
        loss.backward(retain_graph=True)
        step = x.grad  # FAULT
        return loss if step is None else loss + step.sum() * 0

    return dict(model=model, args=(x,), target=torch.tensor([0, 1, 0]).cuda(), loss_fn=attack)


EXPECT = [
    dict(kind='non-leaf-grad', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=["device='cuda'", 'detach', 'requires_grad_'], severity='error', fatal=False),
]
RAISES = None
