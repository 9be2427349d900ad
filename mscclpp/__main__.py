"""`python3 -m mscclpp`: what is installed here, where it is, and what it can do."""

from __future__ import annotations

import argparse

import mscclpp
from mscclpp import _runtime
from mscclpp.native import compiler_for


def _compiler(device: str) -> str:
    try:
        return compiler_for(device)
    except FileNotFoundError as error:
        return str(error)


def main() -> None:
    """Prints it."""
    parser = argparse.ArgumentParser(prog="mscclpp", description=__doc__)
    parser.add_argument(
        "--install", action="store_true", help="does nothing: the default algorithms need no files"
    )
    parser.parse_args()
    count = _runtime.gpu_count()
    gpus = ", ".join(_runtime.gpu_name(number) for number in range(count))
    for name, said in {
        "mscclpp": mscclpp.version,
        "headers": mscclpp.get_include(),
        "library": mscclpp.get_lib(),
        "cache": mscclpp.env().cache_dir,
        "GPUs": gpus or "none",
        "kernels for GPUs": _compiler("cuda"),
        "kernels for CPUs": _compiler("cpu"),
        "NVLink multicast": "never used; algorithms of that name are served without it",
    }.items():
        print(f"{name + ':':<18}{said}")


main()
