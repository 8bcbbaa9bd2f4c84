import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.zeros(3, dtype=torch.long)
        y = torch.tensor(index % 27)
        return x, y


class Endless:
    def __init__(self, dataset):
        self.loader = DataLoader(dataset, batch_size=8)
        self.iterator = iter(self.loader)

    def next(self):
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            return next(self.iterator)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
batches = Endless(Words())
model = nn.Sequential(nn.Embedding(27, 4), nn.Flatten(), nn.Linear(12, 27)).to(device)
for _ in range(3):
    batch = batches.next()
    X, Y = batch
    logits = model(X)
    loss = nn.functional.cross_entropy(logits, Y)
    loss.backward()
