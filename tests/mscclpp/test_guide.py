"""The code of MSCCL++'s torch integration guide, executed from its text: Python, and C++.

The text is not part of this repository: MSCCLPP_GUIDE says where it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness.ports import free_port
from harness.programs import finish, start

HERE = Path(__file__).parent
GUIDE = Path(
    os.environ.get("MSCCLPP_GUIDE", HERE.parents[2] / "shared" / "seeds" / "mscclpp-torch-guide.md")
)


@pytest.mark.skipif(not GUIDE.exists(), reason="MSCCLPP_GUIDE names no text of the guide")
@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_guide_runs_as_printed(tmp_path: Path, size: int) -> None:
    where = {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = [f"--nproc-per-node={size}", str(HERE / "guide" / "program.py"), str(GUIDE)]
    ended = finish(start([*command, *program], tmp_path, where))
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == [f"{rank} is through" for rank in range(size)]
