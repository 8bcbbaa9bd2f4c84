"""Clean: copying methods cross devices on their own (mild hops at most)."""
import torch
from torch import nn

GPUS = 1


class Padder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 3)
        self.register_buffer('seen', torch.zeros(4))

    def forward(self, parts):
        out = torch.zeros(len(parts), 4, device=self.seen.device)
        for row, part in enumerate(parts):
            out[row, :part.shape[0]] = part
        self.seen.copy_(torch.ones(4))
        return self.lin(out)


def build():
    model = Padder().cuda()
    return dict(model=model, args=([torch.randn(2), torch.randn(4), torch.randn(3)],), loss_fn=lambda out, _: out.mean())


EXPECT = []
RAISES = None
