import torch

torch.accelerator.set_device_index(7)
