"""Plans: collectives as data, to be written, proved, simulated, drawn and run.

from torchcomms import plan

b = plan.Builder("mine", "all_gather", ranks=2)
there, back = b.link(b[0], b[1]), b.link(b[1], b[0])
for me, out, into in ((b[0], there, back), (b[1], back, there)):
    me.move(me.input[0], to=[me.output[me.rank], out])
    me.move(into, to=me.output[1 - me.rank])
mine = b.finish()
assert mine.verify()
mine.register(prefer=True)  # from now on it serves all_gather among two ranks
"""

from torchcomms.plan._builder import Buffer, Builder, Channel, Chunks, Lane, Link, Rank
from torchcomms.plan._fit import Fit, Sample, compare, fit, measure, read_samples
from torchcomms.plan._plan import (
    Finding,
    Plan,
    Registration,
    Report,
    Timeline,
    estimate,
    library,
    make,
)
from torchcomms.plan._synthesis import Synthesis, synthesize

__all__ = [
    "Buffer",
    "Builder",
    "Channel",
    "Chunks",
    "Finding",
    "Fit",
    "Lane",
    "Link",
    "Plan",
    "Rank",
    "Registration",
    "Report",
    "Sample",
    "Synthesis",
    "Timeline",
    "compare",
    "estimate",
    "fit",
    "library",
    "make",
    "measure",
    "read_samples",
    "synthesize",
]
