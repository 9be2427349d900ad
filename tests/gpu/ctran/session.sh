#!/bin/sh
# One visit to a GPU host, in less than eight minutes: first whether all is right, what has not run on
# GPUs before coming first, then how long it takes, beside NCCL and torch's symmetric memory. Usage,
# from the root of the checkout:
#   sh tests/gpu/ctran/session.sh [OUTPUT_DIRECTORY [RANKS]]
# Leaves ctran.jsonl (a line for each case) and gpu_collectives.jsonl (a line for each measurement) in
# the output folder. Those of four H200, as benchmarks/results/h200x4/gpu_collectives.jsonl, are what
# backend ncclx goes by after the next build.
# GPU_TESTS_SITE names a build for the Python and torch of that host, see run.sh, which makes one
# otherwise. CHECK_SECONDS, MEASURE_SECONDS: what each half may take.
set -u
out=${1:-build/gpu-session}
ranks=${2:-4}
site=${GPU_TESTS_SITE:-build/gpu/site}
python=${PYTHON:-python3}

sh tests/gpu/ctran/run.sh "$out" --worlds 2 "$ranks" --seconds "${CHECK_SECONDS:-170}"
checked=$?
sizes=""
for kilobytes in 8 32 128 512 1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1048576; do
  sizes="$sizes $((kilobytes * 1024))"
done
# shellcheck disable=SC2086
NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 PYTHONPATH="$site" \
  "$python" benchmarks/gpu_collectives.py --out "$out" --ranks "$ranks" --sizes $sizes \
  --also ncclx plan copies symm --seconds "${MEASURE_SECONDS:-270}"
measured=$?
exit $((checked ? checked : measured))
