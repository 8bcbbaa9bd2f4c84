import torch
from torch import nn


class Accuracy(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("right", torch.zeros(1))

    def forward(self, x, y):
        self.right = self.right + (x.argmax(1) == y).sum()


class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.accs = nn.Linear(4, 2), {"val": Accuracy()}

    def validation_step(self, x, y):
        self.accs["val"](self.head(x), y)


device = "cuda" if torch.cuda.is_available() else "cpu"
lit = Lit().to(device)
lit.validation_step(torch.ones(2, 4, device=device), torch.zeros(2, dtype=torch.long, device=device))
