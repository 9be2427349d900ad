import torch
from torchcomms import new_comm

# Create TCP store
store = torch.distributed.TCPStore(
    host_name="master.node.com",
    port=12345,
    world_size=8,
    is_master=(rank == 0)
)

comm = new_comm("ncclx", device, store=store)
