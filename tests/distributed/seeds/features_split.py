# Split into two groups
if comm.get_rank() < 4:
    ranks = [0, 1, 2, 3]
else:
    ranks = [4, 5, 6, 7]

sub_comm = comm.split(
    rank_groups=[ranks],
    name="sub_group",
    hints=None,
    timeout=None
)

# Use sub_comm for operations within the group
sub_comm.all_reduce(tensor, ReduceOp.SUM, async_op=False)
