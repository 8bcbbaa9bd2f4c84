import torch

torch.cuda.set_device(7)
