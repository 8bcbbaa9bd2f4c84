import torch

scale = torch.ones(8, requires_grad=True).cuda()
optimizer = torch.optim.SGD([scale], lr=0.1)

x = torch.randn(4, 8, device="cuda:0")
(x * scale).sum().backward()
optimizer.step()
