"""`python -m torchcomms` is the command `torchcomms`."""

import sys

from torchcomms.cli import main

sys.exit(main())
