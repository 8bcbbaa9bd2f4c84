import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.GRU(8, 32, batch_first=True)

    def forward(self, picture):
        hidden = torch.zeros(1, len(picture), 32)
        return self.rows(picture, hidden)[0]


model = Reader().to("cuda:0")
model(torch.rand(16, 8, 8, device="cuda:0"))
