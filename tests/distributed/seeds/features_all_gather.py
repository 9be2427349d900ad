# AllGather with list of tensors
tensor = torch.ones(1024, device="cuda")
tensor_list = [torch.empty_like(tensor) for _ in range(comm.get_size())]
comm.all_gather(tensor_list, tensor, async_op=False)

# AllGather single tensor variant
output = torch.empty(comm.get_size() * 1024, device="cuda")
comm.all_gather_single(output, tensor, async_op=False)
