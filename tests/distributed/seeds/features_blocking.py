# Blocks until completion
comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
# tensor is ready to use
