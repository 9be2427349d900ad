"""What a machine is, beside results."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":")[1].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_average": os.getloadavg(),
    }
