"""Beam search adds offsets of the host to what it has chosen on the GPU."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Decoder(nn.Module):
    def __init__(self, vocab=11, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, vocab)

    def step(self, tokens, state):
        state = self.cell(self.embed(tokens), state)
        return F.log_softmax(self.out(state), dim=-1), state

    def forward(self, context, beams=3, steps=4):
        batch = context.shape[0]
        state = context.repeat_interleave(beams, 0)
        tokens = torch.zeros(batch * beams, dtype=torch.long, device=context.device)
        scores = torch.zeros(batch, beams, device=context.device)
        offsets = torch.arange(batch).unsqueeze(1) * beams  # BIRTH
        for _ in range(steps):
            logp, state = self.step(tokens, state)
            total = scores.unsqueeze(-1) + logp.view(batch, beams, -1)
            scores, flat = total.view(batch, -1).topk(beams, dim=-1)
            parents = torch.div(flat, logp.shape[-1], rounding_mode='floor')
            tokens = (flat % logp.shape[-1]).view(-1)
            chosen = (offsets + parents).view(-1)  # FAULT
            state = state.index_select(0, chosen)
        return scores


def build():
    return dict(model=Decoder().to('cuda:0').eval(), args=(torch.randn(2, 8, device='cuda:0'),))


EXPECT = [
    dict(kind='wrong-device', module='', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['device=context.device'], severity='error', fatal=True),
]
RAISES = r'RuntimeError: Expected all tensors to be on the same device'
