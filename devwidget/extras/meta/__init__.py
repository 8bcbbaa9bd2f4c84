"""`compute=False`: operators on meta tensors, and the few values that are known all the same."""
