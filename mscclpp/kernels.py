"""Single kernels: compiled when the program runs, and launched with arguments that Python packs."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mscclpp.devices import extent, has_gpu
from mscclpp.native import compiled
from mscclpp.native_library import checked, in_range, library

__all__ = ["Kernel", "KernelBuilder", "pack"]

_ENTRY = "mscclpp_launch"
# What is put behind the file: the kernel's name in C++ says which arguments it takes.
_EPILOGUE = """
#include <mscclpp/c_api.h>
#include <mscclpp/packed_launch.hpp>
extern "C" __attribute__((visibility("default"))) int {entry}(
    const void* packed, size_t bytes, unsigned blocks, unsigned threads, size_t shared,
    void* stream) {{
  return mscclpp::detail::guarded([&] {{
    mscclpp::launchPacked(&{name}, packed, bytes, blocks, threads, shared,
                          static_cast<cudaStream_t>(stream));
  }});
}}
"""


def pack(*arguments: Any) -> bytes:
    """Arguments for a kernel, each aligned as C++ aligns it.

    An int or a bool is an int of 32 bits, a float one of 32; a type of ctypes is what it is; a
    tensor, an array or a RawGpuBuffer is its address; bytes, such as the `raw` of a handle, are a
    struct by value.

    Raises:
        TypeError: there is no such argument for kernels.
        OverflowError: an int has more than 32 bits: pass a ctypes.c_size_t.
    """
    packed = b""
    for argument in arguments:
        alignment, value = _packed(argument)
        packed += bytes(-len(packed) % alignment) + value
    return packed


def _packed(argument: Any) -> tuple[int, bytes]:
    if isinstance(argument, (bool, int)):
        if not -(2**31) <= argument < 2**32:
            raise OverflowError(f"{argument} has more than 32 bits: pass ctypes.c_size_t of it")
        return 4, struct.pack("i" if argument < 2**31 else "I", argument)
    if isinstance(argument, float):
        return 4, struct.pack("f", argument)
    if isinstance(argument, (bytes, bytearray, memoryview)):
        raw = bytes(argument)
        return (8 if len(raw) % 8 == 0 else 4 if len(raw) % 4 == 0 else 1), raw
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure)):
        return ctypes.alignment(argument), bytes(argument)
    if hasattr(argument, "raw") and isinstance(argument.raw, bytes):
        return 8, argument.raw
    try:
        address, _ = extent(argument)
    except TypeError:
        raise TypeError(f"kernels take no {type(argument).__name__}") from None
    return 8, struct.pack("P", address)


class Kernel:
    """A kernel that was compiled. `KernelBuilder` makes it.

    Attributes:
        name: of the kernel.
        device: "cuda" or "cpu": where it runs.
    """

    def __init__(self, name: str, path: Path, device: str) -> None:
        library()  # which the kernel's library needs, here
        self.name, self.device = name, device
        self._library = ctypes.CDLL(str(path))
        self._entry = getattr(self._library, _ENTRY)
        integer, size, pointer = ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p
        self._entry.argtypes = [ctypes.c_char_p, size, integer, integer, size, pointer]
        self._call = in_range(self._entry, self._entry.argtypes)

    def launch_kernel(
        self, params: bytes, nblocks: int, nthreads: int, shared: int = 0, stream: Any = None
    ) -> None:
        """Puts the kernel on a stream; on the host it returns when the kernel has ended.

        Args:
            params: what `pack` makes.
            shared: bytes of dynamic shared memory.
            stream: of torch or cupy, or its address; None: the default one.

        Raises:
            ValueError: the kernel takes other arguments.
            CommError: it cannot be launched; on the host, also what it waits for in vain.
        """
        if not isinstance(params, bytes):
            raise TypeError(f"params must be what pack makes, not {type(params).__name__}")
        for attribute in ("cuda_stream", "ptr"):
            stream = getattr(stream, attribute, stream)
        checked(self._call(params, len(params), nblocks, nthreads, shared, stream or None))


class KernelBuilder:
    """Compiles a kernel of a file, or takes it from the cache.

    Args:
        file: a .cu file.
        kernel_name: of a `__global__` function in it; with template arguments, if it has some.
        file_dir: where the file is.
        macro_dict: macros by name.
        device: "cuda" or "cpu"; default: as for compile_native.
        arch: of the GPU, as for compile_native.

    Raises:
        CompileError: with the compiler's own words.
        FileNotFoundError: the file, or the compiler, is not there.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        kernel_name: str,
        file_dir: str | os.PathLike[str] | None = None,
        macro_dict: Mapping[str, object] | None = None,
        *,
        device: str | None = None,
        arch: str | None = None,
    ) -> None:
        path = (Path(file_dir) / file if file_dir is not None else Path(file)).absolute()
        where = device or ("cuda" if has_gpu() else "cpu")
        epilogue = _EPILOGUE.format(entry=_ENTRY, name=kernel_name)
        title = "kernel_" + "".join(c if c.isalnum() else "_" for c in kernel_name)
        found, _ = compiled(title, [path], (), macro_dict, where, arch, epilogue)
        self._kernel = Kernel(kernel_name, found, where)

    def get_compiled_kernel(self) -> Kernel:
        """The kernel."""
        return self._kernel
