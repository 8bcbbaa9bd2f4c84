import torch
from torch import nn


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, edges):
        source, target = edges
        gathered = torch.zeros(x.shape, device=x.device)  #! wrong-device: gathered = torch.zeros(x.shape)
        return self.linear(gathered.index_add(0, target, x[source]))


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Convolution(4, 8), Convolution(8, 3)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


model = Graph().to("cuda")
optimizer = torch.optim.Adam(model.parameters())
x, edges = torch.rand(7, 4).to("cuda"), torch.randint(0, 7, (2, 15)).to("cuda")
labels = torch.randint(0, 3, (7,)).to("cuda")  #! wrong-device: labels = torch.randint(0, 3, (7,))
for _ in range(2):
    loss = nn.functional.cross_entropy(model(x, edges), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
