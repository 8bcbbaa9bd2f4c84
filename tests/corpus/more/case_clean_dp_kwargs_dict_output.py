"""Clean: DataParallel with keyword tensors, plain values, a dict output and another output device."""
import torch
from torch import nn

GPUS = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 6)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, *, mask=None, scale=1.0, names=()):
        h = self.drop(self.a(x)) * scale
        return {'h': h * mask, 'norm': h.norm(dim=-1)}


def build():
    model = nn.DataParallel(Net().to('cuda:0'), device_ids=[0, 1], output_device=1)
    kwargs = dict(mask=torch.ones(6, 1, device='cuda:0'), scale=0.5, names=('a', 'b'))
    return dict(model=model, args=(torch.randn(6, 4, device='cuda:0'),), kwargs=kwargs,
                target=torch.zeros(6, 6, device='cuda:1'),
                loss_fn=lambda out, y: (out['h'] - y).pow(2).mean() + out['norm'].mean())


EXPECT = []
RAISES = None
