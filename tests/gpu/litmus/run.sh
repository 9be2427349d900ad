#!/bin/sh
# Builds the litmus program with the host compiler and runs it. Usage, from the root of the checkout:
#   sh tests/gpu/litmus/run.sh [OUTPUT_DIRECTORY [GROUP...]]
# Needs g++ 11+, Python 3, an NVIDIA driver and NVRTC; two GPUs or more for the interesting parts.
# Results: litmus.jsonl in the output directory. About 40 s on four H200.
set -eu
out=${1:-build-litmus}
[ $# -gt 0 ] && shift
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir -p "$out"

python3 tools/embed_device_sources.py . "$build/device_sources.cpp"
objects=""
pids=""
for source in "$build/device_sources.cpp" ctran/base/*.cpp ctran/os/*.cpp \
  ctran/gpu/*.cpp tests/gpu/litmus/*.cpp; do
  object="$build/$(echo "$source" | tr / _).o"
  objects="$objects $object"
  ${CXX:-g++} -std=c++20 -O2 -I. -Iinclude -c "$source" -o "$object" &
  pids="$pids $!"
done
for pid in $pids; do wait "$pid"; done
# shellcheck disable=SC2086
${CXX:-g++} $objects -ldl -lpthread -o "$build/litmus"

if [ -z "${CTRAN_NVRTC_LIBRARY:-}" ]; then
  nvrtc=$(python3 - <<'PY'
import glob, sysconfig
root = sysconfig.get_paths()["purelib"]
found = glob.glob(f"{root}/nvidia/cu13/lib/libnvrtc.so.13") + glob.glob(
    f"{root}/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
print(found[0] if found else "")
PY
)
  [ -n "$nvrtc" ] && export CTRAN_NVRTC_LIBRARY="$nvrtc"
fi
export XDG_CACHE_HOME="$build/cache"
mkdir -p "$XDG_CACHE_HOME"
"$build/litmus" tests/gpu/litmus/kernels.cu "$out/litmus.jsonl" "$@"
