# Simple send/recv
if comm.get_rank() == 0:
    tensor = torch.ones(1024, device="cuda")
    comm.send(tensor, dst=1, async_op=False)
else:
    tensor = torch.zeros(1024, device="cuda")
    comm.recv(tensor, src=0, async_op=False)
