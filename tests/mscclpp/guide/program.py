"""Executes the Python blocks of the torch integration guide, given as a file, and its block of C++,
on GPUs where there are some, else on the CPU.

Replaced on the CPU: names of the device and of its stream. Filled in: what the guide leaves out,
which is how the tuner takes the time, how the benchmark captures, where the class begins whose
methods it shows, and the bodies of the functions in C++, which are those of the example.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed

import mscclpp
from mscclpp.bootstrap import _interface_addresses

TEXT = Path(sys.argv[1]).read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
EXAMPLE = Path(__file__).parents[3] / "examples/torch-integration/customized_allgather.cu"
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
REPLACED = {
    "torch.cuda.set_device(local_rank)": "pass",
    "torch.cuda.current_stream().cuda_stream": "0",
    'device="cuda"': 'device="cpu"',
    "with torch.cuda.graph(g, stream=capture_stream):": "if True:",
}
if ON_GPU:  # ranks share GPUs where there are too few
    device = "local_rank % torch.cuda.device_count()"
    REPLACED = {"torch.cuda.set_device(local_rank)": f"torch.cuda.set_device({device})"}


def block(*words: str) -> str:
    """The first one with all of the words."""
    code: str = next(b for b in BLOCKS if all(word in b for word in words))
    for old, new in REPLACED.items():
        code = code.replace(old, new)
    return code


def netifaces() -> types.ModuleType:
    """As far as the guide needs it."""
    made: Any = types.ModuleType("netifaces")
    found = [(name, address) for name, address in _interface_addresses() if ":" not in address]
    made.AF_INET = socket.AF_INET
    made.interfaces = lambda: [name for name, _ in found]
    made.ifaddresses = lambda wanted: {
        socket.AF_INET: [{"addr": address} for name, address in found if name == wanted]
    }
    return made  # type: ignore[no-any-return]


def check(comm: Any) -> None:
    for count in (512, 1000, 70_000, 1 << 20):
        tensor = (torch.arange(count) % 5 + RANK).float().to(DEVICE)
        comm.all_reduce(tensor)
        wanted = SIZE * (torch.arange(count) % 5) + SIZE * (SIZE - 1) // 2
        assert torch.equal(tensor.cpu(), wanted.float()), count


def tuner(names: dict[str, Any]) -> Any:
    """The class whose methods the guide shows."""
    filled = {
        "# ... (see full example for graph capture logic)": (
            "start = time.perf_counter(); self._run_algo(algo, tune_tensor, size, nb, nt); "
            "tune_tensor.zero_(); elapsed = time.perf_counter() - start"
        ),
        "range(10, 28)": "range(10, 13)",  # so that it takes seconds
        "bench_buf.normal_()": (
            "bench_buf.normal_(); sizes = [1 << 10, 1 << 16]; n_iter_per_graph = 3"
        ),
    }
    if ON_GPU:
        filled["# Capture CUDA graph, warmup, and time..."] = (
            "g, capture_stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()"
        )
    methods = [
        block("def _run_algo"),
        block("def _tune"),
        block("def get_tuned_config"),
        block("def benchmark"),
    ]
    begin = (
        "def __init__(self, comm):\n"
        "    self.comm, self.rank, self.world_size = comm, comm.my_rank, comm.nranks\n"
        "    self.scratch_buffer = tune_tensor\n"
        + textwrap.indent(block("algorithms = load_algorithms(scratch"), "    ")
        + "\n    self._tune(1, 1, 1)\n"
    )
    source = "class Tuned:\n" + textwrap.indent("\n".join([begin, *methods]), "    ")
    for old, new in filled.items():
        assert old in source, old
        source = source.replace(old, new)
    exec(source, names)
    return names["Tuned"]


def native() -> str:
    """The guide's C++ with the example's bodies."""
    (code,) = re.findall(r"^```cpp\n(.*?)^```", TEXT, re.M | re.S)
    example = EXAMPLE.read_text()

    def part(begin: str, end: str) -> str:
        found = example[example.index(begin) :]
        return found[: found.index(end) + len(end)]

    kernel = part("__global__ void allgather", "\n}\n")
    filled = {
        r"    // Kernel implementation\.\.\.\n": kernel.partition(" {\n")[2].removesuffix("}\n"),
        r"private:\n": "private:\n" + part("  struct Context {", "\n  };\n"),
        **{
            rf"    {re.escape(function)}.*/\* \.\.\. \*/ }}\n": part(f"  {function}", "\n  }\n")
            for function in (
                "void initialize(",
                "mscclpp::CommResult kernelFunc(",
                "std::shared_ptr<void> initContext(",
                "mscclpp::AlgorithmCtxKey generateContextKey(",
            )
        },
        r"};\n\n// Expose to Python\n": part("  int rank_", "};\n")
        + part("PyObject* get", "\n}\n"),
    }
    for pattern, text in filled.items():
        code, times = re.subn(pattern, lambda _, text=text: text, code)
        assert times == 1, pattern
    includes = re.findall(r"^#include .*\n", example, re.M)
    return "".join(includes) + code


def gathers(group: mscclpp.CommGroup, names: dict[str, Any], folder: Path) -> None:
    """Approach 3."""
    (folder / "customized_allgather.cu").write_text(native())
    os.chdir(folder)
    names["__file__"] = str(folder / "customized_allgather.py")
    exec(block("import os", "compile_native"), names)
    assert names["algorithm"].is_native_algorithm()
    exec(block("class CustomizedComm", "compile_native"), names)
    comm = names["CustomizedComm"](group)
    for count in (1, 1000, 70_000):
        blocks = (torch.arange(SIZE * count) * 3).reshape(SIZE, count).to(DEVICE)
        output = torch.full_like(blocks, -1)
        comm.all_gather(blocks[RANK].clone(), output)
        if DEVICE == "cuda":  # the kernel waits for a proxy: see docs/mscclpp/native.md
            torch.cuda.synchronize()
        assert torch.equal(output.cpu(), blocks.cpu()), count
    group.barrier()


def main() -> None:
    sys.modules["netifaces"] = netifaces()
    names: dict[str, Any] = {"__name__": "guide", "mscclpp": mscclpp, "time": time}
    exec(block("def init_communicator"), names)
    group = names["init_communicator"]()

    exec(block("def load_algorithms"), names)
    exec(block("class CustomizedComm", "nvls_warp_pipeline"), names)
    check(names["CustomizedComm"](group))

    exec(block("def allreduce_nvls"), names)
    exec(block("def setup_algorithm"), names)
    algorithm = names["setup_algorithm"](RANK, SIZE, group.nranks_per_node)
    exec(block("class CustomizedComm", "mscclpp.Executor"), names)
    check(names["CustomizedComm"](group, algorithm))
    served = algorithm.explain(group.communicator, 4096, mscclpp.DataType.float32)
    assert served.startswith("plan:allreduce_nvls-")

    names["tensor"] = torch.zeros(3)
    exec(block("mscclpp_dtype = "), names)
    exec(block("stream_handle = "), names)
    exec(block("# Allocate symmetric memory via RawGpuBuffer"), names)
    tuned = tuner(names)(group)
    assert set(tuned.best_configs) == {1 << 10, 1 << 11, 1 << 12}
    check(tuned)
    tuned.benchmark()
    with tempfile.TemporaryDirectory() as folder:
        gathers(group, names, Path(folder))
        os.chdir("/")
    os.write(1, f"{RANK} is through\n".encode())


if __name__ == "__main__":
    main()
