"""Every collective once, of tensors on this rank's GPU if there is one; what each rank gets is printed."""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group(dist.get_default_backend_for_device(device))
world = dist.group.WORLD


def own(*shape, dtype=torch.float32):
    """Numbers that tell whose they are."""
    return (torch.arange(float(torch.Size(shape).numel())).view(shape) + 10 * (rank + 1)).to(device, dtype)


def tell(name, *results):
    assert all(result.device == device for result in results)
    print(name, *(result.tolist() for result in results))


def into(call, *shape, dtype=torch.float32):
    """What a call has written."""
    result = own(*shape, dtype=dtype)
    call(result)
    return result


for op in "SUM PRODUCT MIN MAX AVG".split():
    tell(f"all_reduce {op}", into(lambda x, op=op: dist.all_reduce(x, getattr(dist.ReduceOp, op)), 2))
for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool):
    tell(f"broadcast {dtype}", into(lambda x: dist.broadcast(x, size - 1), 3, dtype=dtype))
tell("all_gather", *(parts := [own(2) for _ in range(size)], dist.all_gather(parts, own(2)))[0])
uneven = [own(each + 1, 2) for each in range(size)]
if device.type == "cuda":
    dist.all_gather(uneven, own(rank + 1, 2) + 1)
else:  # gloo knows no such call
    for each in range(size):
        uneven[each] += 10 * (each - rank) + 1
tell("all_gather uneven", *uneven)
tell("reduce_scatter uneven", into(lambda x: dist.reduce_scatter(x, [own(each + 1) for each in range(size)]), rank + 1))
tell("all_gather_into_tensor", into(lambda x: dist.all_gather_into_tensor(x, own(2, 3)), 2 * size, 3))
tell("reduce_scatter", into(lambda x: dist.reduce_scatter(x, [own(2) + at for at in range(size)]), 2))
tell("reduce_scatter_tensor", into(lambda x: dist.reduce_scatter_tensor(x, own(2 * size), dist.ReduceOp.AVG), 2))
tell("all_to_all", *(parts := [own(2) for _ in range(size)], dist.all_to_all(parts, [own(2) + at for at in range(size)]))[0])
tell("all_to_all_single", into(lambda x: dist.all_to_all_single(x, own(2 * size)), 2 * size))
gathered = [own(2) for _ in range(size)] if rank == 0 else None
dist.gather(own(2), gathered)
tell("gather", *gathered or ())
tell("scatter", into(lambda x: dist.scatter(x, [own(2) + at for at in range(size)] if rank == 0 else None), 2))
if rank == 0:
    dist.send(own(3), 1)
elif rank == 1:
    tell("send and recv", into(lambda x: dist.recv(x, 0), 3))
result = own(2)
following, before = (rank + 1) % size, (rank - 1) % size
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, own(2), following), dist.P2POp(dist.irecv, result, before)]):
    work.wait()
tell("batch_isend_irecv", result)
work = dist.all_reduce(result, async_op=True)
work.wait()
tell("async", result)
several = [own(2), own(3)]
with dist._coalescing_manager(world, async_ops=True) as all_of_them:
    for each in several:
        dist.all_reduce(each)
all_of_them.wait()
tell("coalesced", *several)
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
one = [rank]
dist.broadcast_object_list(one, size - 1)
print("objects", objects, one)
dist.barrier()
part = dist.new_group([0, 1])
if rank < 2:
    tell("new_group", into(lambda x: dist.all_reduce(x, group=part), 2))

tell("functional all_reduce", functional.all_reduce(own(2), "avg", world) + 0)
tell("functional all_gather", functional.all_gather_tensor(own(2, 2), 1, world) + 0)
tell("functional reduce_scatter", functional.reduce_scatter_tensor(own(2 * size), "sum", 0, world) + 0)
tell("functional all_to_all", functional.all_to_all_single(own(2 * size), None, None, world) + 0)
tell("functional broadcast", functional.broadcast(own(2), size - 1, world) + 0)
tell("functional coalesced", *(each + 0 for each in functional.all_gather_into_tensor_coalesced([own(1), own(2)], world)))
dist.destroy_process_group()
