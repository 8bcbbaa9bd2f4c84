"""A forward hook multiplies with a CPU mask that a global holds."""
import torch
from torch import nn

GPUS = 1
KEEP = (torch.arange(6) % 2).float()  # BIRTH


def prune(module, args, out):
    return out * KEEP  # FAULT


def build():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    model[0].register_forward_hook(prune)
    model.cuda()
    return dict(model=model, args=(torch.randn(6, 4).cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='0', module_alt=[''], fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(out.device)', "device='cuda", '.to('], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
