"""What NCCL does not take, with what it says; and what two ranks on one GPU are told."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
if torch.cuda.is_available():
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)

    def tell(call):
        try:
            call()
        except Exception as error:
            print(type(error).__name__, str(error).replace("\n", " | "), flush=True)

    ones = torch.ones(2, 3, device="cuda")
    tell(lambda: dist.all_reduce(torch.ones(2)))
    tell(lambda: dist.all_gather([torch.ones(2, 3), ones], ones))
    tell(lambda: dist.all_gather([torch.ones(2, 3, device="cuda:2"), ones], ones))
    tell(lambda: dist.all_reduce(ones.t()))
    tell(lambda: dist.broadcast(ones.short(), 0))
    print(dist.get_backend(), dist.is_nccl_available(), torch.cuda.nccl.version() >= (2, 10))
    dist.all_reduce(ones, dist._make_nccl_premul_sum(2.0))
    print(ones[0].tolist(), flush=True)
    bytes_of = torch.ones(2, device="cuda").to(torch.float8_e4m3fn)
    dist.broadcast(bytes_of, 0)
    with dist._coalescing_manager(device=torch.device("cuda")):
        dist.broadcast(ones, 0)
        dist.broadcast(ones, 1)
    again = dist.new_group([0, 1])
    torch.cuda.set_device(0)
    tell(lambda: dist.barrier(group=again))
    dist.destroy_process_group()
