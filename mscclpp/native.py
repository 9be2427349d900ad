"""Native algorithms: C++ with kernels, compiled when the program runs.

Headers are those of `get_include()`. The C++ compiler compiles, and kernels run on the host; nvcc
compiles the same sources for GPUs, on which the library does not serve them yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mscclpp.launches import rewrite

__all__ = ["CompileError", "compile_native", "get_include", "get_lib"]

_KEY = "__mscclpp_cache_key__"  # in a module: what it was made from
_HOST_SUFFIXES = (".cpp", ".cc", ".cxx")


class CompileError(RuntimeError):
    """The compiler refused; the message is what it said."""


def get_include() -> str:
    """The folder of the headers, for a compiler's -I."""
    return str(_folder("include"))


def get_lib() -> str:
    """The folder of the library, for a compiler's -L and -rpath; cmake/mscclpp is in it."""
    return str(_folder("lib"))


def _folder(name: str) -> Path:
    spec = importlib.util.find_spec("mscclpp")
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / name).is_dir():
            return Path(place) / name
    raise FileNotFoundError(f"mscclpp was installed without its folder {name}")


def compile_native(
    name: str,
    file: str | os.PathLike[str],
    *,
    flags: Sequence[str] = (),
    defines: Mapping[str, object] | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    device: str = "cpu",
    arch: str | None = None,
) -> ModuleType:
    """Compiles a Python module of C++, with kernels, and imports it.

    What was compiled before from the same sources, headers and flags, by the same compiler, is
    taken from the cache. Processes of one host compile once.

    Args:
        name: of the module, as PYBIND11_MODULE in `file` has it.
        file: a .cu file, or a .cpp file, which is for the host.
        flags: more arguments for the compiler.
        defines: macros; None as a value defines one without a value.
        sources: more files.
        device: where kernels run: "cpu", or "cuda", by nvcc. The library does not reach memory of
            GPUs yet: modules for them can be compiled and loaded, and not executed.
        arch: of the GPU, such as "90"; that of the one here if it is not said, else 90.

    Raises:
        CompileError: with the compiler's own words.
        FileNotFoundError: a file, or the compiler, is not there.
    """
    files = [Path(file).absolute(), *(Path(source).absolute() for source in sources)]
    for one in files:
        if not one.is_file():
            raise FileNotFoundError(f"there is no file {one}")
    if device not in ("cuda", "cpu"):
        raise ValueError(f"device must be 'cuda' or 'cpu', not {device!r}")
    macros = [f"-D{k}" if v is None else f"-D{k}={v}" for k, v in (defines or {}).items()]
    compiler = _nvcc(arch or _gpu_arch() or "90") if device == "cuda" else _host_compiler()
    job = _Job(name, tuple(files), compiler, (*macros, *flags))
    library, key = job.result()
    return _imported(name, library, key)


@dataclass(frozen=True)
class _Compiler:
    command: tuple[str, ...]  # of all compilations
    version: str
    is_nvcc: bool

    def passed_on(self, *flags: str) -> list[str]:
        """Flags of the host's compiler or linker."""
        return [f"-Xcompiler={','.join(flags)}"] if self.is_nvcc else list(flags)


def _said_by(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise FileNotFoundError(f"the compiler {command[0]} does not run: {error}") from None


def _nvcc(arch: str) -> _Compiler:
    path = _find_nvcc()
    gencode = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    return _Compiler((path, "-O3", gencode), _said_by(path, "--version"), True)


def _find_nvcc() -> str:
    """By CUDA_HOME or CUDA_PATH, on PATH, or of the wheel nvidia-cuda-nvcc."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home and (Path(home) / "bin" / "nvcc").exists():
            return str(Path(home) / "bin" / "nvcc")
    found = shutil.which("nvcc")
    if found:
        return found
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(place).glob("c*/bin/nvcc")):
            return str(path)
    raise FileNotFoundError(
        "there is no nvcc: set CUDA_HOME, or pip install nvidia-cuda-nvcc, or compile for the host "
        "with device='cpu'"
    )


def _host_compiler() -> _Compiler:
    words = shlex.split(os.environ.get("CXX", ""))
    if not words:
        found = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
        if found is None:
            raise FileNotFoundError("there is no C++ compiler: install g++, or set CXX")
        words = [found]
    return _Compiler((*words, "-O2"), _said_by(*words, "--version"), False)


@functools.cache
def _gpu_arch() -> str | None:
    """Of the first GPU, such as "90a"; None if there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count:
        return None
    version = []
    for attribute in (75, 76):  # COMPUTE_CAPABILITY_MAJOR, _MINOR
        value = ctypes.c_int(0)
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0) != 0:
            return None
        version.append(value.value)
    # The features of one architecture alone are there for those that have any.
    return f"{version[0]}{version[1]}" + ("a" if version[0] >= 9 else "")


@dataclass(frozen=True)
class _Job:
    """What is to be compiled, and how."""

    name: str
    files: tuple[Path, ...]
    compiler: _Compiler
    flags: tuple[str, ...]

    def result(self) -> tuple[Path, str]:
        """The library and its key: of the cache, if what it depends on is as it was."""
        cache = _cache_folder()
        manifest = cache / f"{self.name}-{self._first_key()}.json"
        found = _look_up(manifest)
        if found is not None:
            return found
        with _locked(manifest.with_suffix(".lock")):
            return _look_up(manifest) or self._compile(cache, manifest)

    def _first_key(self) -> str:
        """Of all that is known before the headers are."""
        python = sysconfig.get_config_var("SOABI")
        what = [self.compiler.command, self.compiler.version, self.flags, python, get_lib()]
        digest = hashlib.sha256(json.dumps(what).encode())
        for file in self.files:
            digest.update(str(file).encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:24]

    def _compile(self, cache: Path, manifest: Path) -> tuple[Path, str]:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            work = Path(folder)
            objects: list[str] = []
            depends: set[str] = {str(file) for file in self.files}
            for number, file in enumerate(self.files):
                target, rule = work / f"{number}.o", work / f"{number}.d"
                source = self._prepared(file, work / f"{number}.cpp")
                made = ["-MD", "-MF", str(rule), "-c", str(source), "-o", str(target)]
                self._run(*self._compile_flags(file), *self.flags, *made)
                objects.append(str(target))
                depends |= {path for path in _prerequisites(rule) if Path(path).parent != work}
            hashes = {path: _hash(path) for path in sorted(depends)}
            key = hashlib.sha256(json.dumps([manifest.name, hashes]).encode()).hexdigest()[:24]
            library = cache / f"{self.name}-{key}.so"
            self._run("-shared", *objects, "-o", str(work / "library.so"), *self._link_flags())
            os.replace(work / "library.so", library)
            told = work / "manifest"
            told.write_text(json.dumps({"key": key, "library": library.name, "hashes": hashes}))
            os.replace(told, manifest)
        return library, key

    def _prepared(self, file: Path, rewritten: Path) -> Path:
        if self.compiler.is_nvcc or file.suffix in _HOST_SUFFIXES:
            return file
        rewritten.write_text(rewrite(file.read_text(), str(file)))
        return rewritten

    def _compile_flags(self, file: Path) -> list[str]:
        folders = [get_include(), sysconfig.get_path("include"), *_pybind11()]
        if not self.compiler.is_nvcc:
            folders.append(str(Path(get_include()) / "mscclpp" / "host" / "stand_ins"))
        result = ["-std=c++20", f"-I{file.parent}", *(f"-I{folder}" for folder in folders)]
        return result + self.compiler.passed_on("-fPIC", "-fvisibility=hidden")

    def _link_flags(self) -> list[str]:
        lib = get_lib()
        rpath = f"-Xlinker=-rpath,{lib}" if self.compiler.is_nvcc else f"-Wl,-rpath,{lib}"
        return [f"-L{lib}", "-lmscclpp", rpath]

    def _run(self, *arguments: str) -> None:
        command = [*self.compiler.command, *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            said = (result.stdout + result.stderr).strip()
            raise CompileError(f"{said}\n\nThe command was: {shlex.join(command)}")


def _pybind11() -> list[str]:
    """Where its headers are: of its own package, or of torch, which brings them; neither is
    imported."""
    spec = importlib.util.find_spec("pybind11") or importlib.util.find_spec("torch")
    places = (spec and spec.submodule_search_locations) or ()
    return [str(Path(place) / "include") for place in places]


def _cache_folder() -> Path:
    place = os.environ.get("MSCCLPP_CACHE_DIR")
    folder = (Path(place) if place else Path.home() / ".cache" / "mscclpp") / "native"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _look_up(manifest: Path) -> tuple[Path, str] | None:
    """What was compiled, if all that it was compiled from is as it was."""
    try:
        told = json.loads(manifest.read_text())
        library = manifest.parent / told["library"]
        if library.exists() and all(_hash(path) == was for path, was in told["hashes"].items()):
            return library, told["key"]
    except (OSError, ValueError, KeyError):
        pass
    return None


def _prerequisites(rule: Path) -> list[str]:
    """The files that a rule of make says a target depends on."""
    text = rule.read_text().replace("\\\n", " ").partition(":")[2]
    words = text.replace("\\ ", "\0").split()
    return [word.replace("\0", " ") for word in words]


def _imported(name: str, library: Path, key: str) -> ModuleType:
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, _KEY, None) == key:
        return loaded
    # pybind11 has one module per name; the part behind the last dot is the one of the sources.
    unique = f"mscclpp._compiled_{key}.{name}"
    loader = importlib.machinery.ExtensionFileLoader(unique, str(library))
    spec = importlib.util.spec_from_file_location(unique, str(library), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    setattr(module, _KEY, key)
    sys.modules[name] = module
    return module
