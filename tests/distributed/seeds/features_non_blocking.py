# Returns immediately
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)

# Do other computation
compute_something_else()

# Check if completed
if work.is_completed():
    print("Operation finished")

# Wait for completion
work.wait()
# tensor is ready to use
