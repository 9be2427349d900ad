"""Native algorithms: compiled for the host, where they run, and for GPUs, where nvcc is there."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import mscclpp
from mscclpp import native
from mscclpp.launches import rewrite
from mscclpp.native import CompileError, compile_native, get_include, get_lib
from mscclpp.native_algorithm import NativeAlgorithm

ROOT = Path(__file__).parents[2]
KERNELS = Path(__file__).parent / "native" / "kernels"
GUIDE = ROOT / "examples" / "torch-integration" / "customized_allgather.cu"
MODULES = {
    "mscclpp_native": (GUIDE, "create_allgather_algorithm"),
    **{
        name: (KERNELS / f"{name}.cu", "create")
        for name in ("port_all_gather", "packet_all_reduce", "switch_all_reduce")
    },
}

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None and not os.environ.get("CUDA_HOME"), reason="needs nvcc"
)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("module", MODULES)
def test_runs_on_the_host(module: str, size: int, tmp_path: Path) -> None:
    file, create = MODULES[module]
    worker = str(Path(__file__).parent / "native" / "rank.py")
    command = [sys.executable, worker, module, str(file), create]
    store = f"file://{tmp_path}"
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(size), store],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=250)[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(said)
    assert all(f"rank {r} of {size} is right" in said[r] for r in range(size))


@needs_nvcc
@pytest.mark.parametrize(
    "module",
    ["mscclpp_native", "switch_all_reduce"]
    + [
        pytest.param(name, marks=pytest.mark.full)
        for name in ("port_all_gather", "packet_all_reduce")
    ],
)
def test_compiles_for_gpus_and_loads(module: str) -> None:
    file, create = MODULES[module]
    compiled = compile_native(module, file, device="cuda", arch="90")
    algorithm = NativeAlgorithm(getattr(compiled, create)())
    assert algorithm.collective in ("allgather", "allreduce")


PROGRAM = """
    #include <Python.h>
    #include <mscclpp/algorithm.hpp>
    #include <pybind11/pybind11.h>

    using namespace mscclpp;

    template <class Kernel>
    PyObject* capsule(Kernel kernel) {
      auto* made = new std::shared_ptr<Algorithm>(std::make_shared<NativeAlgorithm>(
          "small", "allreduce", nullptr, kernel,
          [](std::shared_ptr<Communicator>, const void*, void*, size_t, size_t, DataType) {
            return std::make_shared<int>(1);
          },
          [](const void*, void*, size_t, size_t, DataType, bool) { return AlgorithmCtxKey(); },
          16, 4096, CollectiveBufferMode::InPlace,
          std::unordered_map<std::string, uint64_t>{{"fast", 3}}, Algorithm::Constraint{2, 1}));
      return PyCapsule_New(made, "mscclpp::AlgorithmPtr", nullptr);
    }

    PYBIND11_MODULE(kernels, m) {
      m.def("create11", [] {
        return pybind11::reinterpret_steal<pybind11::object>(capsule(
            [](const std::shared_ptr<void>, const void*, void*, size_t, size_t, DataType, ReduceOp,
               cudaStream_t, int, int, const std::unordered_map<std::string, uintptr_t>& extras) {
              return static_cast<CommResult>(extras.at("code"));
            }));
      });
      m.def("create12", [] {
        return pybind11::reinterpret_steal<pybind11::object>(capsule(
            [](const std::shared_ptr<void>&, const void*, void*, size_t, size_t, DataType, ReduceOp,
               cudaStream_t, int, int, const Extras&, DataType accum) {
              if (accum != DataType::FLOAT64) throw Error("no", ErrorCode::RemoteError);
              return CommResult::CommSuccess;
            }));
      });
    }
"""


def module_of(name: str, function: str) -> str:
    """A module with a function, without the headers of pybind11, which take compilers longest."""
    return f"""
static PyMethodDef methods[] = {{{{"{function}", {function}, METH_VARARGS, nullptr}}, {{}}}};
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, methods}};
extern "C" __attribute__((visibility("default"))) PyObject* PyInit_{name}() {{
  return PyModule_Create(&module);
}}
"""


SMALL = """\
#include <Python.h>
#include "answer.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(ANSWER + TWO); }
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "answer.h").write_text("#pragma once\n#define ANSWER 40\n")
    file = tmp_path / "small.cu"
    file.write_text(SMALL + module_of("small", "answer"))
    return file


def test_cache_goes_by_content_headers_included(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilations = []
    run = native._Job._run

    def counted(self: object, *arguments: str) -> None:
        compilations.append(arguments)
        run(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(native._Job, "_run", counted)

    def build(two: str) -> int:
        del compilations[:]
        module = compile_native("small", small, defines={"TWO": two}, device="cpu")
        return int(module.answer())

    assert build("2") == 42
    assert len(compilations) == 2  # a compilation, and the linking
    assert build("2") == 42
    assert compilations == []
    assert build("3") == 43
    assert len(compilations) == 2
    (small.parent / "answer.h").write_text("#pragma once\n#define ANSWER 50\n")
    assert build("3") == 53
    assert len(compilations) == 2
    (small.parent / "answer.h").write_text("#pragma once\n#define ANSWER 40\n")
    assert build("2") == 42


def test_what_was_compiled_elsewhere_serves_without_a_compiler(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path / "here"))
    assert compile_native("small", small, defines={"TWO": 5}, device="cpu").answer() == 45
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    for name in ("small.cu", "answer.h"):
        shutil.copy(tmp_path / name, tmp_path / "there")
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("CXX", "/there/is/none")
    file = tmp_path / "there" / "small.cu"
    assert compile_native("small", file, defines={"TWO": 5}, device="cpu").answer() == 45
    for changed in ("small.cu", "answer.h"):
        text = (tmp_path / "there" / changed).read_text()
        (tmp_path / "there" / changed).write_text(text + "// another\n")
        with pytest.raises(FileNotFoundError, match="the compiler /there/is/none does not run"):
            compile_native("small", file, defines={"TWO": 5}, device="cpu")
        (tmp_path / "there" / changed).write_text(text)


def test_kernels_of_11_and_12_arguments(tmp_path: Path) -> None:
    file = tmp_path / "kernels.cu"
    file.write_text(textwrap.dedent(PROGRAM))
    module = compile_native("kernels", file, device="cpu")
    eleven, twelve = NativeAlgorithm(module.create11()), NativeAlgorithm(module.create12())
    assert (eleven.name, eleven.collective, eleven.tags) == ("small", "allreduce", {"fast": 3})
    assert eleven.message_size_range == (16, 4096)
    assert eleven.constraint == mscclpp.Algorithm.Constraint(2, 1)
    assert eleven.buffer_mode is mscclpp.CollectiveBufferMode.IN_PLACE
    assert eleven.is_native_algorithm()
    assert not eleven.is_dsl_algorithm()
    with pytest.raises(ValueError, match="no message has 8 to 4 bytes"):
        twelve.set_message_size_range(8, 4)
    twelve.set_message_size_range(1, 2)
    assert twelve.message_size_range == (1, 2)
    assert eleven.message_size_range == (16, 4096)
    program = f"""
        import sys
        import mscclpp
        from mscclpp.native import compile_native
        from mscclpp.native_algorithm import NativeAlgorithm, NativeCommunicator
        comm = NativeCommunicator(int(sys.argv[1]), 2, {f"file://{tmp_path}"!r}, 100)
        module = compile_native("kernels", {str(file)!r}, device="cpu")
        arguments = (comm, 64, 64, 16, 16, 0)
        eleven, twelve = NativeAlgorithm(module.create11()), NativeAlgorithm(module.create12())
        print(eleven.execute(*arguments, extras={{"code": 6}}))
        print(twelve.execute(*arguments, accum_dtype=mscclpp.DataType.float64))
        try:
            twelve.execute(*arguments)
        except mscclpp.PeerLostError as error:
            print(error)
        for output in (72, 128):
            try:
                twelve.execute(comm, 64, output, 16, 16, 0)
            except ValueError as error:
                print(str(error).partition(":")[0])
    """
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(rank)],
            stdout=subprocess.PIPE,
            env={**os.environ, "MSCCLPP_HOSTID": str(rank)},  # it is for one rank per host
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, why = rank.communicate(timeout=100)
        assert said.splitlines() == [
            "6", "0", "no (mscclpp: RemoteError)",
            "the input and the output of small overlap",
            "the input and the output of small are apart, but it is written for one",
        ], why  # fmt: skip


WRONG_ARGUMENTS: list[tuple[dict[str, object], type[Exception], str]] = [
    ({"name": "../wrong"}, ValueError, r"as PYBIND11_MODULE has it, not '\.\./wrong'"),
    ({"name": ""}, ValueError, "as PYBIND11_MODULE has it, not ''"),
    ({"name": None}, TypeError, "name must be a str, not NoneType"),
    ({"flags": "-O2"}, TypeError, "flags must be a list of str, not str"),
    ({"sources": "a.cu"}, TypeError, "sources must be a list of str, not str"),
    ({"defines": ["A"]}, TypeError, "defines must be a dict, not list"),
]


def test_errors_of_the_compiler_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "wrong.cu"
    file.write_text("__global__ void k(int*) {}\nvoid f() {\n  k<<<1, 1>>>(undeclared);\n}\n")
    with pytest.raises(CompileError, match=r"wrong\.cu:3:\d+: error.*undeclared"):
        compile_native("wrong", file, device="cpu")
    file.write_text("void f() { <<<1, 1>>>(); }\n")
    with pytest.raises(ValueError, match=r"wrong\.cu:1: this is no launch"):
        compile_native("wrong", file, device="cpu")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        compile_native("absent", tmp_path / "absent.cu")
    with pytest.raises(ValueError, match="device must be"):
        compile_native("wrong", file, device="tpu")
    for arguments, kind, says in WRONG_ARGUMENTS:
        given = {"name": "wrong", "file": file, "device": "cpu", **arguments}
        with pytest.raises(kind, match=says):
            compile_native(**given)  # type: ignore[arg-type]


def test_stacks_of_kernels_end_at_a_guard(tmp_path: Path) -> None:
    file = tmp_path / "deep.cu"
    file.write_text(
        "#include <Python.h>\n"
        "__global__ void deep(size_t bytes) {\n"
        "  __syncthreads();\n"
        "  volatile char* locals = static_cast<char*>(__builtin_alloca(bytes));\n"
        "  if (threadIdx.x == 0) locals[0] = 1;\n"
        "}\n"
        "static PyObject* run(PyObject*, PyObject* arguments) {\n"
        "  deep<<<1, 16>>>(PyLong_AsSize_t(PyTuple_GetItem(arguments, 0)));\n"
        "  Py_RETURN_NONE;\n"
        "}\n" + module_of("deep", "run")
    )
    program = f"""
        from mscclpp import compile_native
        made = compile_native("deep", {str(file)!r}, device="cpu")
        made.run(900 << 10)
        print("so far", flush=True)
        made.run(4 << 20)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "so far\n"), ended.stderr


def test_processes_of_a_host_compile_once(small: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho run >> {log}\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    program = f"""
        from mscclpp.native import compile_native
        made = compile_native("small", {str(small)!r}, defines={{"TWO": 1}}, device="cpu")
        assert made.answer() == 41
    """
    environment = {**os.environ, "CXX": str(compiler), "MSCCLPP_CACHE_DIR": str(tmp_path / "c")}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ranks = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [rank.wait(timeout=200) for rank in ranks] == [0, 0, 0]
    assert log.read_text().count("run") == 3 + 2  # each asks for the version; one compiles


def test_several_sources(tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text(
        "#include <Python.h>\nint two(int);\n"
        "static PyObject* f(PyObject*, PyObject*) { return PyLong_FromLong(two(20)); }\n"
        + module_of("several", "f")
    )
    (tmp_path / "two.cu").write_text(
        "__global__ void twice(int* x) { atomicAdd(x, static_cast<int>(threadIdx.x)); }\n"
        "int two(int x) { twice<<<1, dim3(7)>>>(&x); return x; }\n"
    )
    sources = [tmp_path / "two.cu"]  # without cuda_runtime.h, which .cu files have anyway
    module = compile_native("several", tmp_path / "one.cu", sources=sources, device="cpu")
    assert module.f() == 41


def test_headers_and_library_are_found() -> None:
    assert (Path(get_include()) / "mscclpp" / "core.hpp").exists()
    assert (Path(get_lib()) / "libmscclpp.so").exists()
    assert ctypes.CDLL(str(Path(get_lib()) / "libmscclpp.so")).mscclpp_last_error


def headers(standard: str = "c++20") -> list[Path]:
    folder = Path(get_include())
    return [
        path.relative_to(folder)
        for path in sorted((folder / "mscclpp").rglob("*.hpp"))
        if "host" not in path.parts
        and (standard != "c++17" or path.name != "packed_launch.hpp")  # KernelBuilder's alone
    ]


def has_no_warnings(compiler: str, standard: str, names: list[Path], file: Path) -> None:
    """Nor errors, each header being included twice."""
    file.write_text("".join(f"#include <{name}>\n#include <{name}>\n" for name in names))
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command += [f"-I{get_include()}", str(file)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{', '.join(map(str, names))}: {result.stderr}"


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_every_header_stands_alone(standard: str, tmp_path: Path) -> None:
    """It includes what it needs: what that is depends on the standard, not on the compiler."""
    compiler = "clang++" if shutil.which("clang++") else "g++"  # the faster one
    for name in headers(standard):
        has_no_warnings(compiler, standard, [name], tmp_path / "header.cpp")


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_headers_have_no_warnings(compiler: str, standard: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    has_no_warnings(compiler, standard, headers(standard), tmp_path / "headers.cpp")


@pytest.mark.full
@needs_nvcc
def test_every_header_stands_alone_on_gpus(tmp_path: Path) -> None:
    folder = Path(get_include())
    nvcc = shutil.which("nvcc") or f"{os.environ['CUDA_HOME']}/bin/nvcc"
    files = []
    for number, name in enumerate(headers()):
        files.append(tmp_path / f"header{number}.cu")
        files[-1].write_text(f"#include <{name}>\n#include <{name}>\n")
    command = [nvcc, "-std=c++20", "-Werror=all-warnings", "-arch=sm_90", "--cubin"]
    result = subprocess.run(
        [*command, f"-I{folder}", *map(str, files)], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_programs_find_the_package(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES CXX)\n"
        f"find_package(mscclpp REQUIRED PATHS {get_lib()}/cmake/mscclpp NO_DEFAULT_PATH)\n"
        "add_executable(user user.cpp)\ntarget_link_libraries(user PRIVATE mscclpp::mscclpp)\n"
    )
    (tmp_path / "user.cpp").write_text(
        "#include <cstdio>\n#include <mscclpp/core.hpp>\n"
        "int main() {\n  mscclpp::TcpBootstrap bootstrap(0, 1);\n"
        '  bootstrap.initialize("127.0.0.1:50000");\n'
        '  std::printf("%d %s\\n", bootstrap.getNranks(), mscclpp::version().c_str());\n}\n'
    )
    build = tmp_path / "build"
    for command in (["-S", str(tmp_path), "-B", str(build)], ["--build", str(build)]):
        subprocess.run(["cmake", *command], check=True, capture_output=True, timeout=200)
    said = subprocess.run([build / "user"], check=True, capture_output=True, text=True).stdout
    assert said.startswith("1 0.")


PLANS = """
    #include <Python.h>
    #include <mscclpp/executor.hpp>
    #include <pybind11/pybind11.h>
    #include <pybind11/stl.h>

    using namespace mscclpp;

    std::vector<int> run(int rank, int size, std::string store, std::string path,
                         std::vector<int> values, int other, int less) {
      auto bootstrap = std::make_shared<TcpBootstrap>(rank, size);
      bootstrap->initializeByStore(store, 100);
      auto communicator = std::make_shared<Communicator>(bootstrap);
      Executor executor(communicator);
      const ExecutionPlan plan(path, rank);
      std::vector<int> output(values.size());
      const size_t bytes = values.size() * sizeof(int);
      for (int i = 0; i < 3; ++i) {
        executor.execute(rank + other, values.data(), output.data(), bytes, bytes - less,
                         DataType::INT32, plan, nullptr);
      }
      return output;
    }

    PYBIND11_MODULE(plans, m) { m.def("run", run); }
"""


def test_programs_of_the_dsl_are_executed(tmp_path: Path) -> None:
    """By mscclpp::Executor, from their JSON."""
    (tmp_path / "plans.cpp").write_text(textwrap.dedent(PLANS))
    program = f"""
        import importlib.util, pathlib, sys
        import mscclpp
        folder = pathlib.Path({str(tmp_path)!r})
        rank = int(sys.argv[1])
        path = {str(Path(__file__).parent / "programs" / "all_reduce_one_shot.py")!r}
        spec = importlib.util.spec_from_file_location("written", path)
        written = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(written)
        plan = folder / f"plan{{rank}}.json"
        plan.write_text(mscclpp.compile(written.program(2)).to_json())
        module = mscclpp.compile_native("plans", folder / "plans.cpp", device="cpu")
        values = [i * (rank + 1) for i in range(1001)]
        def run(plan, other=0, less=0):
            run.number = getattr(run, "number", 0) + 1
            store = folder / f"store{{run.number}}"
            store.mkdir(exist_ok=True)
            return module.run(rank, 2, f"file://{{store}}", str(plan), values, other, less)
        def refuses(why, *arguments):
            try:
                run(*arguments)
            except RuntimeError as error:
                assert why in str(error), error
            else:
                raise AssertionError(why)
        assert run(plan) == [i * 3 for i in range(1001)]
        refuses("do not belong together", plan, 0, 4)
        refuses("do not belong together", plan, 0, 1)
        refuses(f"this is rank {{rank}}, not {{rank + 1}}", plan, 1)
        refuses("cannot be read", folder / "absent.json")
        text = plan.read_text()
        assert '"reduce_op":' in text.replace(" ", ""), text[:2000]
        largest = folder / f"largest{{rank}}.json"
        largest.write_text(text.replace('"sum"', '"max"'))
        assert run(largest) == [i * 2 for i in range(1001)]
        mixed = folder / f"mixed{{rank}}.json"
        mixed.write_text(text.replace('"sum"', '"max"', 1))
        if text.count('"sum"') > 1:
            refuses("mixes reductions", mixed)
    """
    ranks = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(rank)])
        for rank in range(2)
    ]
    assert [rank.wait(timeout=200) for rank in ranks] == [0, 0]


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("k<<<1, 2>>>();", "Launch(1, 2)([&](auto... a) { k(a...); });"),
        (
            "ns::k<T, 3> <<<f(a, b), 2, 0, s>>> (x, y[1]);",
            "Launch(f(a, b), 2, 0, s)([&](auto... a) { ns::k<T, 3>(a...); }, x, y[1]);",
        ),
        ('log("k<<<1, 1>>>()"); // k<<<1, 1>>>()', 'log("k<<<1, 1>>>()"); // k<<<1, 1>>>()'),
        (
            "int n = 1'000; k<<<1,\n 1>>>('<', \"<<<\");",
            "int n = 1'000; Launch(1,\n 1)([&](auto... a) { k(a...); }, '<', \"<<<\");",
        ),
        (
            "extern __shared__ float4 s[];",
            "auto* const s = static_cast<float4*>(::mscclpp::host::dynamicShared());",
        ),
        ("a << b; c >> d;", "a << b; c >> d;"),
    ],
)
def test_launches_become_calls(source: str, call: str) -> None:
    expected = call.replace("Launch(", "::mscclpp::host::Launch(").replace(
        "auto... a) {", "auto... mscclpp_arguments) {"
    )
    expected = expected.replace("(a...)", "(mscclpp_arguments...)")
    assert rewrite(source, "f.cu") == '#line 1 "f.cu"\n' + expected
