# Launch multiple operations
work1 = comm.all_reduce(tensor1, ReduceOp.SUM, async_op=True)
work2 = comm.broadcast(tensor2, root=0, async_op=True)
work3 = comm.all_gather(output_list, tensor3, async_op=True)

# Do computation
compute()

# Wait for all
work1.wait()
work2.wait()
work3.wait()
