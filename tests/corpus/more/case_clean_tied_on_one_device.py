"""Clean: tied weights on one GPU; norms and biases with equal values on two GPUs are not tied."""
import torch
from torch import nn

GPUS = 2


class Writer(nn.Module):
    def __init__(self, vocab=16, width=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.norm = nn.LayerNorm(width)
        self.far = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width))
        nn.init.zeros_(self.far[1].bias)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        h = self.norm(self.embed(ids))
        h = self.far(h.to('cuda:1'))
        return self.head(h.to('cuda:0'))


def build():
    model = Writer().to('cuda:0')
    model.far.to('cuda:1')
    ids = torch.randint(0, 16, (2, 5), device='cuda:0')
    return dict(model=model, args=(ids,), target=ids, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                loss_fn=lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()))


EXPECT = []
RAISES = None
