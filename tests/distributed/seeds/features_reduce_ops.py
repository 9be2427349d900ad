from torchcomms import ReduceOp

ReduceOp.SUM         # Sum of elements
ReduceOp.PRODUCT     # Product of elements
ReduceOp.MIN         # Minimum element
ReduceOp.MAX         # Maximum element
ReduceOp.BAND        # Bitwise AND
ReduceOp.BOR         # Bitwise OR
ReduceOp.BXOR        # Bitwise XOR
ReduceOp.AVG         # Average of elements
ReduceOp.PREMUL_SUM(factor)  # Pre-multiplication sum
