import torch
from torchcomms import new_comm, ReduceOp

comm = new_comm("ncclx", torch.device("cuda"))
tensor = torch.ones(1024, device="cuda") * comm.get_rank()

# Synchronous
comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)

# Asynchronous
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
work.wait()
