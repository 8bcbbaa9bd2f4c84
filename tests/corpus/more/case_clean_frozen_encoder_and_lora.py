"""A frozen base with low-rank adapters; only the adapters are in the optimizer."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1

class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(base.in_features, 2) * 0.1)
        self.b = nn.Parameter(torch.zeros(2, base.out_features))

    def forward(self, x):
        return self.base(x) + x @ self.a @ self.b


def build():
    model = nn.Sequential(Lora(nn.Linear(4, 6)), nn.ReLU(), Lora(nn.Linear(6, 2)))
    model.cuda()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    return dict(model=model, args=(torch.randn(3, 4).cuda(),), target=torch.tensor([0, 1, 0]).cuda(),
                loss_fn=nn.CrossEntropyLoss(), optimizer=opt, steps=2)


EXPECT = []
RAISES = None
