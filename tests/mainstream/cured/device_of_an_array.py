import numpy as np
import torch


def load(device):
    edges = np.array([[0, 1], [1, 2]])
    count = edges.shape[0]
    adjacency = torch.eye(3)
    adjacency[edges.T[0], edges.T[1]] = torch.ones(count)
    return torch.rand(3, 4).to(device), adjacency


class Net(torch.nn.Module):
    def forward(self, adjacency, features):
        return adjacency @ features


features, adjacency = load("cuda")
print(Net()(adjacency, features).shape)
