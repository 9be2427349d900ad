"""The functions for kernels in Triton agree with the header for those in CUDA, and become the
instructions by which data comes before its signal: compiled here, run by tests/gpu_ranks."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
tct = pytest.importorskip("torchcomms.triton")

from torchcomms.triton import _layout  # noqa: E402  (behind what is there or not)

INCLUDE = Path(__file__).parents[3] / "include"
STRUCTS = {
    "STATE": "DeviceWindowState",
    "PEER": "DeviceWindowPeer",
    "BUFFER": "RegisteredBuffer",
    "REPORT": "DeviceWindowReport",
}
ENUMERATORS = {
    "What::{}": ("SIGNAL", "COUNTER", "BARRIER", "RANK", "DESTINATION", "SOURCE"),
    "k{}": ("OK", "ABORTED", "TIMED_OUT", "OUT_OF_RANGE"),
    "SignalOp::{}": ("SET", "ADD"),
    "CmpOp::{}": ("EQ", "NE", "LT", "LE", "GT", "GE"),
}


def in_cpp(name: str) -> str:
    """What has this number in the header."""
    for form, names in ENUMERATORS.items():
        if name in names:
            spelled = name if "Op" in form else "".join(map(str.capitalize, name.split("_")))
            return f"static_cast<int>({form.format(spelled)})"
    if name.startswith("SIZE_OF_"):
        return f"sizeof({STRUCTS[name.removeprefix('SIZE_OF_')]})"
    struct, _, rest = name.partition("_")
    first, *others = rest.lower().split("_")
    return f"offsetof({STRUCTS[struct]}, {first}{''.join(map(str.capitalize, others))})"


def test_numbers_are_those_of_the_header() -> None:
    values = {n: v.value for n, v in vars(_layout).items() if isinstance(v, tl.constexpr)}
    assert values.keys() >= {name for names in ENUMERATORS.values() for name in names}
    lines = [f'static_assert({in_cpp(n)} == {v}, "{n}");' for n, v in values.items()]
    source = [
        "#include <cstddef>",
        "#include <mscclpp/gpu.hpp>",
        "#include <comms/torchcomms/device/TorchCommDeviceWindow.hpp>",
        "using namespace torchcomms::device;",
        *lines,
    ]
    told = subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", f"-I{INCLUDE}", "-x", "c++", "-"],
        input="\n".join(source),
        text=True,
        capture_output=True,
    )
    assert told.returncode == 0, told.stderr


@triton.jit
def fill(buffer):
    """All threads store."""
    at = tl.arange(0, 1024)
    tl.store(tl.cast(buffer, tl.pointer_type(tl.int8)) + at, at)


@triton.jit
def put(window, buffer, number, out):
    tl.store(out, tct.put_block(window, number, buffer, number, 0, number, 0, 1))


@triton.jit
def add(window, buffer, number, out):
    fill(buffer)
    tl.store(out, tct.signal_block(window, 0, number))


@triton.jit
def set_signal(window, buffer, number, out):
    fill(buffer)
    tl.store(out, tct.signal_block(window, 0, number, tct.SET, 7))


@triton.jit
def wait_signal(window, buffer, number, out):
    tl.store(out, tct.wait_signal_block(window, number, tct.GE, 7))


@triton.jit
def wait_signal_from(window, buffer, number, out):
    tl.store(out, tct.wait_signal_from_block(window, 0, number, tct.NE, 7))


@triton.jit
def wait_counter(window, buffer, number, out):
    tl.store(out, tct.wait_counter_block(window, number, tct.LT, 7))


@triton.jit
def read(window, buffer, number, out):
    tl.store(out, tct.read_signal(window, number) + tct.read_counter(window, number))


@triton.jit
def reset(window, buffer, number, out):
    fill(buffer)
    tl.store(out, tct.reset_signal(window, number) + tct.reset_counter(window, number))


@triton.jit
def fence(window, buffer, number, out):
    tl.store(out, number)
    tct.fence()


@triton.jit
def flush(window, buffer, number, out):
    tl.store(out, tct.flush_block(window))


@triton.jit
def barrier(window, buffer, number, out):
    fill(buffer)
    tl.store(out, tct.barrier_block(window, number))


@triton.jit
def describe(window, buffer, number, out):
    tl.store(out, tct.rank(window) + tct.num_ranks(window))
    tl.store(out + 1, tct.base(window) + tct.size(window))
    tl.store(out + 2, tct.get_nvlink_address(window, number))


KERNELS = (put, add, set_signal, wait_signal, wait_signal_from, wait_counter, read, reset)
KERNELS += (fence, flush, barrier, describe)

SYNC = re.compile(r"(bar\.sync|barrier\.\S*sync\S*)\s+0;")
RELEASE = re.compile(r"\b(atom|red)\S*\.release\S*")
ACQUIRE = re.compile(r"\b(ld|atom)\S*\.acquire\S*")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@functools.cache
def ptx_of(kernel: Any, arch: int, warps: int = 4) -> list[list[str]]:
    """The instructions of a kernel, by basic blocks; the first of each is its label.

    ptxas has taken them, too."""
    signature = {"window": "i64", "buffer": "i64", "number": "i64", "out": "*i64"}
    made = triton.compile(
        triton.compiler.ASTSource(kernel, signature),
        target=triton.backends.compiler.GPUTarget("cuda", arch, 32),
        options={"num_warps": warps},
    )
    blocks: list[list[str]] = [["entry:"]]
    for line in made.asm["ptx"].split("{", 1)[1].splitlines():
        text = line.split("//")[0].strip()
        if re.match(r"\$L__BB\w+:", text):
            blocks.append([text])
        elif text and not text.startswith((".", "$")):
            blocks[-1].append(text)
            if re.search(r"\bbra\b", text):
                blocks.append(["behind a branch:"])
    return blocks


def having(blocks: list[list[str]], what: re.Pattern[str]) -> list[tuple[int, int]]:
    """Which instructions of which blocks."""
    return [
        (b, i)
        for b, block in enumerate(blocks)
        for i, text in enumerate(block)
        if what.search(text)
    ]


ARCHS = pytest.mark.parametrize("arch", [80, 90])


@ARCHS
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_other_gpus_see_what_is_released_and_acquired(kernel: Any, arch: int) -> None:
    blocks = ptx_of(kernel, arch)
    found = having(blocks, RELEASE) + having(blocks, ACQUIRE)
    assert (found == []) == (kernel in (fence, flush, describe))
    for block, at in found:
        assert ".sys." in blocks[block][at]
        assert blocks[block][at].startswith("@"), "the first thread alone"


def stored_before(blocks: list[list[str]]) -> dict[tuple[int, int], bool]:
    """For each release: is there a way to it on which a tensor is stored, and then no barrier?"""
    labels = {block[0].rstrip(":"): b for b, block in enumerate(blocks)}
    found = dict.fromkeys(having(blocks, RELEASE), False)
    seen, left = set(), [(0, False)]
    while left:
        b, stored = left.pop()
        if (b, stored) in seen:
            continue
        seen.add((b, stored))
        for i, text in enumerate(blocks[b]):
            if (b, i) in found:
                found[b, i] |= stored
            if SYNC.search(text):
                stored = False
            elif re.search(r"\bst\.global\.(v\d|b8)", text):  # a scalar has all its bits at once
                stored = True
        last = blocks[b][-1]
        if branch := re.search(r"\bbra(\.uni)?\s+(\S+);", last):
            left.append((labels[branch[2]], stored))
        if b + 1 < len(blocks) and (last.startswith("@") or not re.match(r"bra|ret", last)):
            left.append((b + 1, stored))
    return found


@ARCHS
@pytest.mark.parametrize("kernel", [put, add, set_signal, reset, barrier], ids=lambda k: k.__name__)
def test_all_threads_have_stored_before_the_first_one_releases(kernel: Any, arch: int) -> None:
    blocks = ptx_of(kernel, arch)
    assert any(re.search(r"st\.global\.(v\d|b8)", text) for block in blocks for text in block)
    found = stored_before(blocks)
    assert found
    assert not any(found.values())


@ARCHS
@pytest.mark.parametrize(
    "kernel", [wait_signal, wait_signal_from, wait_counter, barrier], ids=lambda k: k.__name__
)
def test_waits_acquire_in_a_loop_that_looks_at_the_clock_and_at_the_host(
    kernel: Any, arch: int
) -> None:
    blocks = ptx_of(kernel, arch)
    ((block, at),) = having(blocks, ACQUIRE)
    assert any(SYNC.search(text) for text in blocks[block][at:]), "all threads learn of it"
    # The loop: the nearest label before to which a branch behind leads.
    behind = " ".join(text for one in blocks[block:] for text in one)
    labels = [one[0].rstrip(":") for one in blocks[: block + 1] if one[0].startswith("$")]
    assert any(re.search(rf"bra(\.uni)?\s+{re.escape(label)};", behind) for label in labels)
    everything = " ".join(text for one in blocks for text in one)
    assert re.search(r"ld\.volatile\.global", everything)
    assert everything.count("%globaltimer") == 2


@ARCHS
@pytest.mark.parametrize("warps", [1, 4, 8])
def test_puts_copy_16_bytes_at_a_time(arch: int, warps: int) -> None:
    everything = " ".join(text for one in ptx_of(put, arch, warps) for text in one)
    assert re.search(r"ld\.global\.v2\.b64", everything)
    assert re.search(r"st\.global\.v2\.b64", everything)


@ARCHS
@pytest.mark.parametrize("kernel", [fence, flush], ids=lambda kernel: kernel.__name__)
def test_fences_have_a_barrier_on_either_side(kernel: Any, arch: int) -> None:
    (block,) = ptx_of(kernel, arch)
    order = [
        "fence" if "fence.sc.sys" in text else "barrier"
        for text in block
        if "fence." in text or SYNC.search(text)
    ]
    assert order == ["barrier", "fence", "barrier"]
