import torch
from torch import nn


class Trainer:
    def __init__(self, model, gpu_id):
        self.model = model.to(gpu_id)


device = 5
Trainer(nn.Linear(2, 2), device)
