import torch
from torchcomms import new_comm

# Create file store
store = torch.distributed.FileStore("/tmp/torchcomm_test", world_size=8)

comm = new_comm("ncclx", device, store=store)
