import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"x": torch.rand(4), "y": torch.tensor(index % 2)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, batch):
        return nn.functional.cross_entropy(self.head(batch["x"]), batch["y"])


device = "cuda" if torch.cuda.is_available() else "cpu"
model = Net().to(device)
loader = torch.utils.data.DataLoader(Data(), batch_size=4)
for epoch in range(2):
    for batch in loader:
        model(batch).backward()
