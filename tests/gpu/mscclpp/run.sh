#!/bin/sh
# mscclpp on real GPUs: its cases, how long its algorithms take beside NCCL, the examples and the guide.
# Usage, from the root of the checkout:
#   sh tests/gpu/mscclpp/run.sh [OUTPUT_DIRECTORY [ARGUMENTS OF run.py...]]
# Two ranks share the GPU where there is one: then there is nothing of NCCL, which refuses that.
# MSCCLPP_GUIDE names the text of MSCCL++'s torch integration guide.
set -eu
out=${1:-build/gpu-mscclpp}
[ $# -gt 0 ] && shift
mkdir -p "$out"
python=${PYTHON:-python3}
. tests/gpu/site.sh
PYTHONPATH="$site:$(pwd)/tests" "$python" tests/gpu/mscclpp/run.py --out "$out" "$@"
