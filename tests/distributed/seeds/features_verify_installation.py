import torch
import torchcomms

# Check available backends
print(f"TorchComm version: {torchcomms.__version__}")

# Try creating communicator (single process)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
backend = "ncclx" if torch.cuda.is_available() else "gloo"

try:
    comm = torchcomms.new_comm(backend, device)
    print(f"Successfully created {backend} communicator")
    print(f"Rank: {comm.get_rank()}, Size: {comm.get_size()}")
    comm.finalize()
except Exception as e:
    print(f"Error: {e}")
