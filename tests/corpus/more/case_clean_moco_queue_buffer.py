"""Clean: a contrastive queue in a buffer, written slice by slice, with its pointer read after the step."""
import torch
import torch.nn.functional as F
from torch import nn

GPUS = 1


class MoCo(nn.Module):
    def __init__(self, width=6, size=16):
        super().__init__()
        self.query = nn.Linear(8, width)
        self.key = nn.Linear(8, width).requires_grad_(False)
        self.register_buffer('queue', F.normalize(torch.randn(width, size), dim=0))
        self.at = 0

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[:, self.at:self.at + n] = keys.T
        self.at = (self.at + n) % self.queue.shape[1]

    def forward(self, left, right):
        q = F.normalize(self.query(left), dim=1)
        with torch.no_grad():
            k = F.normalize(self.key(right), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone()], 1) / 0.07
        self.enqueue(k)
        return logits


def build():
    model = MoCo().cuda()
    batch = torch.randn(4, 8).cuda()
    return dict(model=model, args=(batch, batch + 0.1), target=torch.zeros(4, dtype=torch.long, device='cuda'),
                loss_fn=F.cross_entropy, optimizer=torch.optim.SGD(model.query.parameters(), lr=0.1), steps=2)


EXPECT = []
RAISES = None
