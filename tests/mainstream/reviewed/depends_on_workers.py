import sys

import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.transform = nn.Identity()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(torch.rand(4))


def train(workers):
    model = nn.Linear(4, 2).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for x in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=workers):
        loss = model(x.to("cuda")).square().mean()
        total += loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
