"""Low rank adapters are put around layers of a model that has moved already."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Lora(nn.Module):
    def __init__(self, base, rank=2, alpha=4):
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.01)  # BIRTH
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.a), self.b)  # FAULT


def inject(model):
    for name, child in model.named_children():
        if isinstance(child, nn.Linear):
            setattr(model, name, Lora(child))  # INJECTED
        else:
            inject(child)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))


def build():
    model = nn.Sequential(Attention(8), nn.LayerNorm(8)).to('cuda:0')
    inject(model)
    trained = [p for n, p in model.named_parameters() if n.endswith(('.a', '.b'))]
    return dict(model=model, args=(torch.randn(2, 3, 8, device='cuda:0'),), loss_fn=lambda out, _: out.mean(),
                optimizer=torch.optim.AdamW(trained))


EXPECT = [
    dict(kind='wrong-device', module='0.q', also_modules=['0.k', '0.v'], fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# INJECTED'],
         fix_contains=['.to(', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
