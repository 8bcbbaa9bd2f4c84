import torch
from torch import nn


class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.rand(3), {"boxes": torch.rand(2, 4), "labels": torch.ones(2)}


def collate(items):
    return [each[0] for each in items], [each[1] for each in items]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, images, targets):
        out = self.layer(torch.stack(images))
        return sum((out[i] - t["boxes"]).abs().mean() for i, t in enumerate(targets))


def main():
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    model = Detector().to(device)
    for images, targets in torch.utils.data.DataLoader(Boxes(), batch_size=2, collate_fn=collate):
        images = [image.to(device) for image in images]
        loss = model(images, targets)
        loss.backward()


main()
