#!/bin/sh
# Backend ctran on real GPUs: builds for the python3 and torch of this host if that has not been
# done, then runs cases and matrix. Usage, from the root of the checkout:
#   sh tests/gpu/ctran/run.sh [OUTPUT_DIRECTORY [ARGUMENTS OF run.py...]]
# Needs g++ 11+, CMake, Ninja, and a torch with CUDA.
set -eu
out=${1:-build/gpu-ctran}
[ $# -gt 0 ] && shift
mkdir -p "$out"
python=${PYTHON:-python3}
# NVLink multicast can put the GPUs of a shared host out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

site=${TORCHCOMMS_SITE:-build/gpu/site}
if [ ! -d "$site/torchcomms" ]; then
  cmake -G Ninja -B build/gpu -DBUILD_PYTHON=ON -DCMAKE_BUILD_TYPE=Release \
    -DPython_EXECUTABLE="$(command -v "$python")" >"$out/build.log"
  ninja -C build/gpu >>"$out/build.log" || { tail -n 60 "$out/build.log"; exit 1; }
  cmake --install build/gpu --prefix "$site" >>"$out/build.log"
  (cd torchcomms && find . -name '*.py' ! -path './csrc/*') | while read -r file; do
    mkdir -p "$site/torchcomms/$(dirname "$file")"
    cp "torchcomms/$file" "$site/torchcomms/$file"
  done
fi
site=$(cd "$site" && pwd)
if [ -z "${CTRAN_NVRTC_LIBRARY:-}" ]; then
  CTRAN_NVRTC_LIBRARY=$("$python" -c 'import glob, sysconfig
root = sysconfig.get_paths()["purelib"]
print(*glob.glob(f"{root}/nvidia/cu13/lib/libnvrtc.so.13")[:1])')
  [ -n "$CTRAN_NVRTC_LIBRARY" ] && export CTRAN_NVRTC_LIBRARY || unset CTRAN_NVRTC_LIBRARY
fi
if [ -n "${PRECOMPILE_WORLDS:-}" ]; then
  g++ -std=c++20 -O1 -I. tests/gpu/ctran/precompile.cpp -o "$out/precompile" \
    -L"$site/torchcomms/lib" -lctran -Wl,-rpath,"$site/torchcomms/lib"
  # shellcheck disable=SC2086
  "$out/precompile" $PRECOMPILE_WORLDS
  rm "$out/precompile"
fi
PYTHONPATH="$site:$(pwd)/tests" "$python" tests/gpu/ctran/run.py --out "$out" "$@"
