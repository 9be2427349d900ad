"""The build backend: scikit-build-core, which is fetched where a build without isolation has none.

So `pip install --no-build-isolation .` works wherever torch is. What is fetched lies in a folder of
its own for as long as the build takes.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

REQUIREMENTS = ("scikit-build-core>=0.11", "cmake>=3.22", "ninja>=1.10")


def installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    # uv says in UV where it is.
    return [os.environ.get("UV", "uv"), "pip", "install", "--python", sys.executable]


def fetch() -> None:
    folder = tempfile.mkdtemp(prefix="torchcomms-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        subprocess.run([*installer(), "--quiet", "--target", folder, *REQUIREMENTS], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"torchcomms is built with {', '.join(REQUIREMENTS)}. They are not installed and could "
            f"not be fetched ({error}): pip install -r requirements.txt"
        ) from None
    sys.path.append(folder)
    importlib.invalidate_caches()


if importlib.util.find_spec("scikit_build_core") is None:
    fetch()

from scikit_build_core.build import *  # noqa: E402, F403  (the hooks that pip calls)
