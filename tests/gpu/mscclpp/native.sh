#!/bin/sh
# Kernels of a program's own on real GPUs, with 2 ranks. Usage, from the root of the checkout:
#   sh tests/gpu/mscclpp/native.sh [ARGUMENTS OF native.py...]
# Without nvcc there, compile before where there is one, for the same Python, and carry the folder:
#   MSCCLPP_CACHE_DIR=build/gpu/kernels sh tests/gpu/mscclpp/native.sh --compile --arch 90a
#   MSCCLPP_CACHE_DIR=build/gpu/kernels sh tests/gpu/mscclpp/native.sh --ranks 2 --arch 90a
# GPU_TESTS_SITE is a folder with the packages torchcomms and mscclpp, as tests/gpu/ctran/run.sh
# makes it; PYTHON the interpreter.
set -eu
python=${PYTHON:-python3}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

site=$(cd "${GPU_TESTS_SITE:-build/gpu/site}" && pwd)
(cd mscclpp && find . -name '*.py' ! -path './csrc/*') | while read -r file; do
  mkdir -p "$site/mscclpp/$(dirname "$file")"
  cp "mscclpp/$file" "$site/mscclpp/$file"
done
PYTHONPATH="$site:$(pwd)/tests" exec "$python" tests/gpu/mscclpp/native.py "$@"
