"""Clean: an LSTM state is kept on the model as an attribute, detached, and made anew on the input's device."""
import torch
from torch import nn

GPUS = 1


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.out = nn.Linear(8, 20)
        self.state = None

    def forward(self, ids):
        if self.state is None:
            zeros = ids.new_zeros(1, ids.shape[0], 8, dtype=torch.float32)
            self.state = (zeros, zeros.clone())
        seq, state = self.lstm(self.embed(ids), self.state)
        self.state = tuple(part.detach() for part in state)
        return self.out(seq)


def build():
    model = Reader().to('cuda:0')
    ids = torch.randint(0, 20, (3, 5)).to('cuda:0')
    opt = torch.optim.Adam(model.parameters())
    return dict(model=model, args=(ids,), target=ids, optimizer=opt, steps=3,
                loss_fn=lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()))


EXPECT = []
RAISES = None
