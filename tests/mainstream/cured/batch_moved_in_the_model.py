import torch
from torch import nn


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(3), torch.tensor(index)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 10)

    def forward(self, words):
        return self.embed(words)


def main():
    model = Net().to("cuda")
    for pictures, words in torch.utils.data.DataLoader(Words(), batch_size=4, num_workers=0):
        pictures = pictures.to("cuda")
        scores = model(words)
        nn.functional.cross_entropy(scores, words).backward()


main()
