"""A half-precision covariance is inverted."""
import torch
from torch import nn

GPUS = 1


class White(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        cov = x.T @ x + torch.eye(4, dtype=x.dtype, device=x.device)
        return self.lin(x @ torch.linalg.inv(cov))  # FAULT


def build():
    return dict(model=White().half().cuda(), args=(torch.randn(6, 4).half().cuda(),), loss_fn=lambda out, _: out.mean())


EXPECT = [
    dict(kind='unsupported-on-device', module='', fault_line='# FAULT', birth_line=None,
         fix_contains=['.float()'], severity='error', fatal=True),
]
RAISES = r"Low precision dtypes not supported|not implemented for 'Half'"
