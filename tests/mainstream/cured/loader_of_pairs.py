import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(4), torch.tensor(index % 2)


class Trainer:
    def __init__(self, device):
        self.device = device
        self.model = nn.Linear(4, 2).to(self.device)

    def fit(self, loader):
        for batch in loader:
            x, y = batch
            x = x.to(self.device)
            nn.functional.cross_entropy(self.model(x), y).backward()


trainer = Trainer("cuda")
trainer.fit(torch.utils.data.DataLoader(Data(), batch_size=4))
