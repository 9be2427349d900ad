"""Native algorithms: C++ with kernels, compiled when the program runs.

Headers are those of `get_include()`. nvcc compiles, and kernels run on GPUs, or the C++ compiler,
and they run on the host.
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

from mscclpp.devices import has_gpu
from mscclpp.environment import env
from mscclpp.folders import get_include, get_lib
from mscclpp.launches import rewrite
from mscclpp.native_library import library as loaded_library

__all__ = ["CompileError", "compile_native", "get_include", "get_lib"]

_KEY = "__mscclpp_cache_key__"  # in a module: what it was made from
_HOST_SUFFIXES = (".cpp", ".cc", ".cxx")


class CompileError(RuntimeError):
    """The compiler refused; the message is what it said."""


def compile_native(
    name: str,
    file: str | os.PathLike[str],
    *,
    flags: Sequence[str] = (),
    defines: Mapping[str, object] | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    device: str | None = None,
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
        device: where kernels run: "cuda", by nvcc, or "cpu"; default: "cuda" where there is a GPU
            and nvcc, or a module in the cache that was compiled elsewhere; else "cpu".
        arch: of the GPU, such as "90"; that of the one here if it is not said, else 90.

    Raises:
        CompileError: with the compiler's own words.
        FileNotFoundError: a file, or the compiler, is not there.
        TypeError, ValueError: an argument makes no sense.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    if not name.isidentifier():
        raise ValueError(f"name must be that of a module, as PYBIND11_MODULE has it, not {name!r}")
    for what, several in (("flags", flags), ("sources", sources)):
        if isinstance(several, str | bytes | os.PathLike):
            raise TypeError(f"{what} must be a list of str, not {type(several).__name__}")
    if not isinstance(defines, Mapping | None):
        raise TypeError(f"defines must be a dict, not {type(defines).__name__}")
    files = [Path(file).absolute(), *(Path(source).absolute() for source in sources)]
    library, key = compiled(name, files, flags, defines, device, arch)
    return _imported(name, library, key)


def compiled(
    name: str,
    files: Sequence[Path],
    flags: Sequence[str] = (),
    defines: Mapping[str, object] | None = None,
    device: str | None = None,
    arch: str | None = None,
    epilogue: str = "",
) -> tuple[Path, str]:
    """A library of those files, and its key; see compile_native.

    Args:
        epilogue: comes behind the first file.
    """
    for one in files:
        if not one.is_file():
            raise FileNotFoundError(f"there is no file {one}")
    if device not in ("cuda", "cpu", None):
        raise ValueError(f"device must be 'cuda' or 'cpu', not {device!r}")
    macros = [f"-D{k}" if v is None else f"-D{k}={v}" for k, v in (defines or {}).items()]
    arguments = (name, tuple(files), (*macros, *flags), epilogue)
    if device == "cuda" or (device is None and has_gpu()):
        job = _Job(*arguments, arch or gpu_arch() or "90")
        try:
            return job.result()
        except FileNotFoundError:
            if device == "cuda":
                raise
    return _Job(*arguments, None).result()


def compiler_for(device: str) -> str:
    """The compiler of kernels for "cuda" or "cpu". Raises FileNotFoundError if there is none."""
    return _find_nvcc() if device == "cuda" else _host_compiler().command[0]


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
    # Each page of a stack is touched in turn, so none skips the guard below the stack.
    return _Compiler(
        (*words, "-O2", "-fstack-clash-protection"), _said_by(*words, "--version"), False
    )


@functools.cache
def gpu_arch() -> str | None:
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
    flags: tuple[str, ...]
    epilogue: str
    arch: str | None  # of the GPU; None: for the host

    @functools.cached_property
    def compiler(self) -> _Compiler:
        return _host_compiler() if self.arch is None else _nvcc(self.arch)

    def result(self) -> tuple[Path, str]:
        """The library and its key: of the cache, if what it depends on is as it was."""
        cache = _cache_folder()
        first = f"{self.name}-{self._key_of_sources()}"
        try:
            manifest = cache / f"{first}-{self._key_of_compiler()}.json"
        except FileNotFoundError:
            # Without a compiler, what another machine has compiled of the same sources serves.
            for manifest in sorted(cache.glob(f"{first}-*.json")):
                found = self._look_up(manifest, everything=False)
                if found is not None:
                    return found
            raise
        found = self._look_up(manifest)
        if found is not None:
            return found
        with _locked(manifest.with_suffix(".lock")):
            return self._look_up(manifest) or self._compile(cache, manifest)

    def _key_of_sources(self) -> str:
        python = sysconfig.get_config_var("SOABI")
        what = [self.arch, self.flags, self.epilogue, python]
        digest = hashlib.sha256(json.dumps(what).encode())
        for file in self.files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:24]

    def _key_of_compiler(self) -> str:
        folders = [str(file.parent) for file in self.files]
        what = [self.compiler.command, self.compiler.version, get_lib(), folders]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]

    def _places(self) -> dict[str, Path]:
        """Folders that may be elsewhere on the machine that a cache is carried to."""
        folders = {f"{{{i}}}": file.parent for i, file in enumerate(self.files)}
        return {"{include}": Path(get_include()), **folders}

    def _carried(self, path: str) -> str:
        for mark, folder in self._places().items():
            if Path(path).is_relative_to(folder):
                return f"{mark}/{Path(path).relative_to(folder)}"
        return path

    def _look_up(self, manifest: Path, everything: bool = True) -> tuple[Path, str] | None:
        """What was compiled, if all that it was compiled from is as it was; else, without
        `everything`, if the sources and the headers of mscclpp are."""
        try:
            told = json.loads(manifest.read_text())
            library = manifest.parent / told["library"]
            if not library.exists():
                return None
            for path, was in told["hashes"].items():
                mark, _, rest = path.partition("/")
                folder = self._places().get(mark)
                if folder is None and not everything:
                    continue
                if _hash(path if folder is None else str(folder / rest)) != was:
                    return None
            return library, told["key"]
        except (OSError, ValueError, KeyError):
            return None

    def _compile(self, cache: Path, manifest: Path) -> tuple[Path, str]:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            work = Path(folder)
            objects: list[str] = []
            depends: set[str] = {str(file) for file in self.files}
            for number, file in enumerate(self.files):
                target, rule = work / f"{number}.o", work / f"{number}.d"
                source = self._prepared(file, work, number)
                made = ["-MD", "-MF", str(rule), "-c", str(source), "-o", str(target)]
                self._run(*self._compile_flags(file), *self.flags, *made)
                objects.append(str(target))
                depends |= {path for path in _prerequisites(rule) if Path(path).parent != work}
            hashes = {self._carried(path): _hash(path) for path in sorted(depends)}
            key = hashlib.sha256(json.dumps([manifest.name, hashes]).encode()).hexdigest()[:24]
            library = cache / f"{self.name}-{key}.so"
            self._run("-shared", *objects, "-o", str(work / "library.so"), *self._link_flags())
            os.replace(work / "library.so", library)
            told = work / "manifest"
            told.write_text(json.dumps({"key": key, "library": library.name, "hashes": hashes}))
            os.replace(told, manifest)
        return library, key

    def _prepared(self, file: Path, work: Path, number: int) -> Path:
        epilogue = self.epilogue if number == 0 else ""
        if self.compiler.is_nvcc or file.suffix in _HOST_SUFFIXES:
            if not epilogue:
                return file
            made = work / f"{number}{file.suffix}"
            made.write_text(f'#include "{file}"\n{epilogue}')
        else:
            made = work / f"{number}.cpp"
            source = rewrite(file.read_text(), str(file))
            made.write_text(f"#include <cuda_runtime.h>\n{source}\n{epilogue}")  # as nvcc does
        return made

    def _compile_flags(self, file: Path) -> list[str]:
        folders = [get_include(), sysconfig.get_path("include"), *_pybind11()]
        if not self.compiler.is_nvcc:
            folders.append(str(Path(get_include()) / "mscclpp" / "host" / "stand_ins"))
        result = ["-std=c++20", f"-I{file.parent}", *(f"-I{folder}" for folder in folders)]
        if self.compiler.is_nvcc:
            result.append("-DMSCCLPP_USE_CUDA")  # for files that the host's compiler gets
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
    folder = Path(env().cache_dir) / "native"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _prerequisites(rule: Path) -> list[str]:
    """The files that a rule of make says a target depends on."""
    text = rule.read_text().replace("\\\n", " ").partition(":")[2]
    words = text.replace("\\ ", "\0").split()
    return [word.replace("\0", " ") for word in words]


def _imported(name: str, library: Path, key: str) -> ModuleType:
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, _KEY, None) == key:
        return loaded
    loaded_library()  # here, wherever it was when the module was linked
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
