import torch
from torchcomms import new_comm

# Select backend when creating communicator
device = torch.device("cuda")
comm = new_comm("ncclx", device, name="my_comm")  # or "nccl", "rccl", "gloo"
