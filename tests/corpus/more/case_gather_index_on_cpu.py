"""`gather` gets an index that was sorted on the CPU."""
import torch
from torch import nn

GPUS = 1


class Pick(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 7)

    def forward(self, x, lengths):
        scores = self.score(x)
        last = (lengths - 1).unsqueeze(1)
        return scores.gather(1, last)  # FAULT


def build():
    model = Pick().cuda()
    lengths = torch.randint(1, 7, (5,))  # BIRTH
    return dict(model=model, args=(torch.randn(5, 4).cuda(),), kwargs={'lengths': lengths}, loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['.to(', ".cuda()", "device='cuda"], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
