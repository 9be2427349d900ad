"""Collectives that are written, as programs of thread blocks and channels, in Python.

Needs neither PyTorch nor a GPU. So far there is the language, `mscclpp.language`, which turns a
program into an execution plan in JSON.
"""

from mscclpp import language as language
from mscclpp.language.utils import AlgoSpec as AlgoSpec

__all__ = ["AlgoSpec", "language"]
