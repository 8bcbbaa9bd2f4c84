import torch
from torch import nn


class Graph:
    def __init__(self, **fields):
        self.store = Store(fields)

    def __getattr__(self, name):
        return self.store.fields[name]

    def to(self, device):
        self.store.to(device)
        return self


class Store:
    def __init__(self, fields):
        self.fields = fields

    def to(self, device):
        self.fields = {name: value.to(device) for name, value in self.fields.items()}


class Graphs:
    def __getitem__(self, index):
        edges, labels = torch.randint(0, 20, (2, 60)), torch.randint(0, 3, (20,))
        return Graph(x=torch.rand(20, 4), edges=edges, labels=labels, mask=torch.rand(20) > 0.5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, edges):
        x = self.first(x).relu()
        return self.second(torch.zeros_like(x).index_add_(0, edges[0], x[edges[1]]))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
graph = Graphs()[0]
model = Net().to(device)


def train():
    out = model(graph.x, graph.edges)
    loss = nn.functional.cross_entropy(out[graph.mask], graph.labels[graph.mask])
    loss.backward()


train()
