"""Thread blocks that share an operation."""

from __future__ import annotations

from collections.abc import Sequence

from mscclpp.language.source import Call

__all__ = ["MOST_BLOCKS", "MOST_THREADS", "ThreadBlockGroup"]

MOST_BLOCKS = 1024  # of a rank: all of them run at the same time
MOST_THREADS = 1024  # of a thread block on a GPU


class ThreadBlockGroup:
    """Several thread blocks of a rank that divide one operation's data among them.

    Given to an operation as `tb_group=`, instead of `tb=`.
    """

    def __init__(self, tb_list: Sequence[int]) -> None:
        self.tb_list = checked_blocks(Call("ThreadBlockGroup"), tb_list)

    def __repr__(self) -> str:
        return f"ThreadBlockGroup({list(self.tb_list)})"


def checked_blocks(call: Call, tb_list: Sequence[int]) -> tuple[int, ...]:
    """Numbers of thread blocks, each once; raises ProgramError."""
    blocks = tuple(checked_block(call, tb) for tb in call.listed("tb_list", tb_list))
    if not blocks:
        call.fail("there must be at least one thread block")
    if len(set(blocks)) < len(blocks):
        call.fail(f"a thread block is listed twice: {list(blocks)}")
    return blocks


def checked_block(call: Call, tb: object) -> int:
    if isinstance(tb, bool) or not isinstance(tb, int) or tb < 0:
        call.fail(f"tb must be the number of a thread block, not {tb!r}")
    if tb >= MOST_BLOCKS:
        call.fail(f"there is no thread block {tb}: a rank has at most {MOST_BLOCKS} thread blocks")
    return tb
