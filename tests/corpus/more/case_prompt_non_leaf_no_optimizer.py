"""An adversarial perturbation was moved after requires_grad was set; its `.grad` stays None."""
import torch
from torch import nn

GPUS = 1


class Attack(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 2)

    def forward(self, x, delta):
        return self.net(x + delta)


def loss_fn(out, target):
    return nn.functional.cross_entropy(out, target)


def build():
    model = Attack().cuda()
    delta = torch.zeros(3, 4, requires_grad=True).cuda()  # BIRTH
    opt = torch.optim.SGD([delta], lr=0.1)  # FAULT
    return dict(model=model, args=(torch.randn(3, 4).cuda(), delta), loss_fn=loss_fn, target=torch.tensor([0, 1, 0]).cuda(),
                optimizer=opt)


EXPECT = [
    dict(kind='non-leaf-grad', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=["device='cuda", '.detach().requires_grad_()', 'nn.Parameter'], severity='error', fatal=True),
]
RAISES = r"can't optimize a non-leaf Tensor"
