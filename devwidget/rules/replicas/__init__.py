"""What `nn.DataParallel` does to a model that was not written for it."""
