"""Prints what the build must know about torch, one `NAME=value` a line; exits 3 if there is none.

Run by CMake with the Python that is being built for. pip's isolated builds hide the packages of
the environment they install into, though the interpreter is that environment's own; its folders
are looked into last, so that `pip install .` builds against the torch that will be used.
"""

import os
import site
import sys
import sysconfig

sys.path += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
sys.path.append(site.getusersitepackages())

try:
    import torch
except ImportError as error:
    print(error)
    sys.exit(3)

root = os.path.dirname(os.path.abspath(torch.__file__))
# pybind11 before 3.0 lets modules see each other's classes (c10d::Store) only if they say they were
# built alike; torch that has such a pybind11 tells what it says.
pybind11 = {
    name: getattr(torch._C, f"_PYBIND11_{name}", None)
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
}
include = os.path.join(root, "include")
facts = {
    "TORCH_VERSION": torch.__version__,
    "TORCH_CXX11_ABI": int(torch._C._GLIBCXX_USE_CXX11_ABI),
    "TORCH_INCLUDE_DIRS": ";".join([include, os.path.join(include, "torch/csrc/api/include")]),
    "TORCH_LIB_DIR": os.path.join(root, "lib"),
    "TORCH_PYBIND11": ";".join(f'PYBIND11_{k}="{v}"' for k, v in pybind11.items() if v),
}
for name, value in facts.items():
    print(f"{name}={value}")
