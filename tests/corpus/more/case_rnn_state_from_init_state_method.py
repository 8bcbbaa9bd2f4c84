"""A method that the training code calls makes the first state of an LSTM on the host."""
import torch
from torch import nn
import torch.nn.functional as F

GPUS = 1


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(9, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 9)

    def init_state(self, batch):
        return torch.zeros(1, batch, 5), torch.zeros(1, batch, 5)  # BIRTH

    def forward(self, ids, state):
        out, state = self.lstm(self.embed(ids), state)  # FAULT
        return self.out(out)


def build():
    model = Lm().to('cuda:0')
    ids = torch.randint(0, 9, (2, 4), device='cuda:0')
    state = model.init_state(2)  # CALL
    return dict(model=model, args=(ids, state), loss_fn=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()), target=ids)


EXPECT = [
    dict(kind='wrong-device', module='lstm', fault_line='# FAULT', birth_line='# BIRTH', birth_alt=['# CALL'],
         fix_contains=['.to(', 'device='], severity='error', fatal=True),
]
RAISES = r'RuntimeError: .*same device|hidden'
