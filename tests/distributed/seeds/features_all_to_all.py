# Equal-sized all-to-all
input_tensor = torch.arange(1024 * comm.get_size(), device="cuda")
output_tensor = torch.empty_like(input_tensor)
comm.all_to_all_single(output_tensor, input_tensor, async_op=False)

# Variable-sized all-to-all
output_split_sizes = [100, 200, 300, 400]  # Different sizes per rank
input_split_sizes = [150, 250, 350, 250]
comm.all_to_all_v_single(output, input, output_split_sizes, input_split_sizes, async_op=False)
