import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(4), torch.tensor(index % 2)


def main():
    model = nn.Linear(4, 2).to("cuda")
    for x, y in torch.utils.data.DataLoader(Data(), batch_size=4):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()


main()
