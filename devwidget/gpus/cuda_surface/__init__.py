"""`torch.cuda` and `torch.accelerator` on virtual GPUs."""
