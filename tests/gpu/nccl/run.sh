#!/bin/sh
# Backend nccl on real GPUs: builds for the python3 and torch of this host if that has not been done,
# then runs cases, matrix and timings. Usage, from the root of the checkout:
#   sh tests/gpu/nccl/run.sh [OUTPUT_DIRECTORY [ARGUMENTS OF run.py...]]
# Needs g++ 11+, CMake, Ninja, and a torch with CUDA. A build that was carried here is taken from
# $GPU_TESTS_SITE, a folder that has the package torchcomms.
set -eu
out=${1:-build/gpu-nccl}
[ $# -gt 0 ] && shift
mkdir -p "$out"
python=${PYTHON:-python3}
# NVLink multicast can put the GPUs of a shared host out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

site=${GPU_TESTS_SITE:-build/gpu/site}
if [ ! -d "$site/torchcomms" ]; then
  cmake -G Ninja -B build/gpu -DBUILD_PYTHON=ON -DCMAKE_BUILD_TYPE=Release \
    -DPython_EXECUTABLE="$(command -v "$python")" >"$out/build.log"
  ninja -C build/gpu >>"$out/build.log"
  cmake --install build/gpu --prefix "$site" >>"$out/build.log"
  (cd torchcomms && find . -name '*.py' ! -path './csrc/*') | while read -r file; do
    mkdir -p "$site/torchcomms/$(dirname "$file")"
    cp "torchcomms/$file" "$site/torchcomms/$file"
  done
fi
site=$(cd "$site" && pwd)
PYTHONPATH="$site:$(pwd)/tests" "$python" tests/gpu/nccl/run.py --out "$out" "$@"
