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
. tests/gpu/site.sh
if [ -n "${PRECOMPILE_WORLDS:-}" ]; then
  g++ -std=c++20 -O1 -I. -Iinclude tests/gpu/ctran/precompile.cpp -o "$out/precompile" \
    -L"$site/torchcomms/lib" -lctran -Wl,-rpath,"$site/torchcomms/lib"
  # shellcheck disable=SC2086
  "$out/precompile" $PRECOMPILE_WORLDS
  rm "$out/precompile"
fi
PYTHONPATH="$site:$(pwd)/tests" "$python" tests/gpu/ctran/run.py --out "$out" "$@"
