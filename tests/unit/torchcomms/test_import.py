"""A guest in torch's house: what importing does, in either order and when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__import__("torchcomms").__file__).parent


def run(program: str, *path: Path) -> str:
    """Standard output of a fresh Python."""
    lines = [f"import sys; sys.path.insert(0, {str(folder)!r})" for folder in path]
    if path:  # the finder of an editable installation stands before the path
        redirects = "ScikitBuildRedirectingFinder"
        lines.append(
            f"sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != {redirects!r}]"
        )
    result = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, program])],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    "imports", ["import torch, torchcomms", "import torchcomms, torch", "import torchcomms._comms"]
)
def test_orders(imports: str) -> None:
    said = run(
        f"{imports}\n"
        "import torch, torchcomms\n"
        "comm = torchcomms.new_comm('fake', torch.device('cpu'))\n"
        "work = comm.all_reduce(torch.ones(1), torchcomms.ReduceOp.SUM, False)\n"
        "print(work.is_completed(), torch.distributed.is_available())"
    )
    assert said == "True True"


def test_what_is_not_there_is_an_import_error() -> None:
    # Newer torch asks for names that we may not have, and takes ImportError alone for a no.
    for module in ("torchcomms", "torchcomms._comms"):
        with pytest.raises(ImportError):
            exec(f"from {module} import _there_is_no_such_name")


def test_starts_no_thread() -> None:
    count = "import os; print(len(os.listdir('/proc/self/task')))"
    hidden = (
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torchcomms': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    without = run(f"import sys\n{hidden}import torch\n{count}")
    assert run(f"import torch, torchcomms\n{count}") == without


def another_build(folder: Path, torch_version: str | None) -> Path:
    """The package as it would be, had it been built for that torch: without its extension."""
    copy = folder / "torchcomms"
    copy.mkdir(parents=True)
    for file in PACKAGE.glob("*.py"):
        if file.name != "_build_info.py":
            (copy / file.name).write_text(file.read_text())
    if torch_version is not None:
        (copy / "_build_info.py").write_text(f"TORCH_VERSION = {torch_version!r}\n")
    return folder


REFUSALS = """
import torch                     # which may try, and must not mind
assert torch.distributed.is_available()
for folder in {folders!r}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchcomms"]:
        del sys.modules[name]
    sys.path[0] = folder
    try:
        import torchcomms
    except ImportError as error:
        print(type(error).__name__, " ".join(str(error).split()))
    else:
        print("imported")
"""


def test_refuses_another_torch_before_it_loads_anything(tmp_path: Path) -> None:
    """And says when it has not been built."""
    builds = {
        str(another_build(tmp_path / str(version), version)): version
        for version in ("2.7.1", "1.15.0+cu132", "99.0.0", None)
    }
    first = Path(next(iter(builds)))
    said = run(REFUSALS.format(folders=list(builds)), first).splitlines()
    for version, line in zip(builds.values(), said, strict=True):
        if version is None:
            assert line.startswith("ImportError torchcomms has not been built here")
        else:
            told = f"ImportError This torchcomms was built for torch {version}, but torch"
            assert line.startswith(told)
            assert "pip install" in line, version


def test_triton_is_for_those_who_ask_for_it() -> None:
    """And who has none is told what to install."""
    said = run(
        "import sys, torchcomms\n"
        "assert 'triton' not in sys.modules\n"
        "sys.modules['triton'] = None\n"
        "try: import torchcomms.triton\n"
        "except ImportError as error: print(error)"
    )
    assert said.startswith("torchcomms.triton needs Triton")
    assert "pip install triton" in said


def test_public_names_are_there() -> None:
    import torchcomms

    assert torchcomms.__all__ == sorted(torchcomms.__all__)
    for name in torchcomms.__all__:
        assert hasattr(torchcomms, name)
