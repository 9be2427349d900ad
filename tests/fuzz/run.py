"""Runs one fuzzer on its corpus, then for a while on what it makes of that: run.py FUZZER FOLDER.

FUZZ_SECONDS (default 1) says for how long. FOLDER keeps what was learned, and what was found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def bytes_of(seed: Path) -> bytes:
    """A seed as the fuzzer is to see it."""
    if seed.suffix != ".hex":
        return seed.read_bytes()
    lines = (line.partition("#")[0] for line in seed.read_text().splitlines())
    return bytes.fromhex("".join(lines))


def main() -> int:
    fuzzer, folder = Path(sys.argv[1]), Path(sys.argv[2])
    target = fuzzer.name.removeprefix("fuzz_")
    seeds = folder / "seeds"
    shutil.rmtree(seeds, ignore_errors=True)
    learned = folder / "learned"
    for made in (seeds, learned):
        made.mkdir(parents=True, exist_ok=True)
    files = sorted((CORPUS / target).iterdir())
    if not files:
        print(f"tests/fuzz/corpus/{target} has no seeds")
        return 1
    for file in files:
        (seeds / file.name).write_bytes(bytes_of(file))
    limit = os.environ.get("FUZZ_SECONDS", "1")
    command = [str(fuzzer), f"-max_total_time={limit}", "-timeout=25", "-rss_limit_mb=2048"]
    command += ["-print_final_stats=1", f"-artifact_prefix={folder}/", str(learned), str(seeds)]
    print(" ".join(command), flush=True)
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
