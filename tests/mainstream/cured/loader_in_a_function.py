import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __init__(self, n):
        self.xs, self.ys = torch.rand(n, 4), torch.arange(n) % 2

    def __len__(self):
        return len(self.xs)

    def __getitem__(self, index):
        return self.xs[index], self.ys[index]


def train(model, loader, device):
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()


device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
train(model, torch.utils.data.DataLoader(Data(8), batch_size=4), device)
