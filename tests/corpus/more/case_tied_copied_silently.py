"""The head is a copy of the embedding on another GPU: two independent parameters since then."""
import torch
from torch import nn

GPUS = 2


class Writer(nn.Module):
    def __init__(self, vocab=16, width=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight

    def spread(self):
        self.embed.to('cuda:0')
        self.body.to('cuda:0')
        self.head.weight = nn.Parameter(self.embed.weight.to('cuda:1'))  # BIRTH
        return self

    def forward(self, ids):
        h = self.body(self.embed(ids))
        return self.head(h.to('cuda:1'))


def build():
    model = Writer().spread()
    ids = torch.randint(0, 16, (2, 5), device='cuda:0')
    return dict(model=model, args=(ids,), target=ids.to('cuda:1'), optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                loss_fn=lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()))


EXPECT = [
    dict(kind='split-tied-weights', module=None, module_alt=['', 'head', 'embed'], fault_line=None, birth_line='# BIRTH',
         fix_contains=['same device', 'tie', 'F.linear'], severity='error', fatal=False),
]
RAISES = None
