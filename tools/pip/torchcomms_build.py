"""The build backend: scikit-build-core, which is fetched where a build without isolation has none.

So `pip install --no-build-isolation .` works wherever torch is. What is fetched lies in a folder of
its own for as long as the build takes.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import subprocess
import sys
import tempfile

REQUIREMENT = "scikit-build-core>=0.11"
PROGRAMS = ("cmake", "ninja")


def installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]


def fetch() -> None:
    folder = tempfile.mkdtemp(prefix="torchcomms-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wanted = [REQUIREMENT, *(name for name in PROGRAMS if shutil.which(name) is None)]
    try:
        subprocess.run([*installer(), "--quiet", "--target", folder, *wanted], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"torchcomms is built by {REQUIREMENT}, which is not installed and could not be fetched"
            f" ({error}): pip install -r requirements.txt"
        ) from None
    sys.path.append(folder)
    importlib.invalidate_caches()


if importlib.util.find_spec("scikit_build_core") is None:
    fetch()

from scikit_build_core.build import *  # noqa: E402, F403  (the hooks that pip calls)
