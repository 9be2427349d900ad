"""Collectives that are written, as programs of thread blocks and channels, in Python.

    import mscclpp

    algorithm = mscclpp.compile(write_program, spec)  # proved right, or an error with the line

Needs neither PyTorch nor a GPU.
"""

from mscclpp import language as language
from mscclpp.compiler import Algorithm as Algorithm
from mscclpp.compiler import compile as compile
from mscclpp.language.utils import AlgoSpec as AlgoSpec
from mscclpp.proof import CannotVerify as CannotVerify
from mscclpp.proof import NotProved as NotProved
from mscclpp.proof import Report as Report

__all__ = ["AlgoSpec", "Algorithm", "CannotVerify", "NotProved", "Report", "compile", "language"]
