"""A loss module outside the model keeps a plain tensor: wrong-device, not unregistered."""
import torch
from torch import nn

GPUS = 1


class Focal(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.alpha = torch.ones(n) / n  # BIRTH

    def forward(self, out, target):
        logp = out.log_softmax(-1)
        picked = logp.gather(1, target[:, None]).squeeze(1)
        return -(self.alpha[None] * logp.exp()).sum(-1).mul(picked).mean()  # FAULT


def build():
    model = nn.Linear(4, 3).cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=Focal(), target=torch.randint(0, 3, (6,)).cuda())


EXPECT = [
    dict(kind='wrong-device', module=None, fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', '.cuda()', "device='cuda", 'register_buffer'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
