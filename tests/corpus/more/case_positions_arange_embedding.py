"""Position ids are made on the CPU inside forward and go to an embedding."""
import torch
from torch import nn

GPUS = 1


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(20, 6)
        self.place = nn.Embedding(16, 6)

    def forward(self, input_ids, attention_mask=None):
        positions = torch.arange(input_ids.size(1)).expand_as(input_ids)  # BIRTH
        h = self.word(input_ids) + self.place(positions)  # FAULT
        return h if attention_mask is None else h * attention_mask[..., None]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = Tokens()
        self.head = nn.Linear(6, 20)

    def forward(self, batch):
        return {'logits': self.head(self.tokens(**batch))}


def build():
    model = Model().cuda()
    ids = torch.randint(0, 20, (2, 5)).cuda()
    batch = {'input_ids': ids, 'attention_mask': torch.ones_like(ids)}
    return dict(model=model, args=(batch,), loss_fn=lambda out, _: out['logits'].mean())


EXPECT = [
    dict(kind='wrong-device', module='tokens.place', fault_line='# FAULT', birth_line='# BIRTH',
         fix_contains=['device=input_ids.device', '.to(input_ids.device)'], severity='error', fatal=True),
]
RAISES = r'Expected all tensors to be on the same device'
