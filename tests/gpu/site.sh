# For the scripts beside this: `site` is a folder with torchcomms and mscclpp for the python3 and torch of
# this host, built in build/gpu if GPU_TESTS_SITE names none, and NVRTC is torch's. Wants `out`, a folder,
# and `python`. Needs g++ 11+, CMake, Ninja, and a torch with CUDA.
# NVLink multicast can put the GPUs of a shared host out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

site=${GPU_TESTS_SITE:-build/gpu/site}
if [ ! -d "$site/torchcomms" ]; then
  cmake -G Ninja -B build/gpu -DBUILD_PYTHON=ON -DCMAKE_BUILD_TYPE=Release \
    -DPython_EXECUTABLE="$(command -v "$python")" >"$out/build.log"
  ninja -C build/gpu >>"$out/build.log" || { tail -n 60 "$out/build.log"; exit 1; }
  cmake --install build/gpu --prefix "$site" >>"$out/build.log"
  find torchcomms mscclpp -name '*.py' ! -path '*/csrc/*' | while read -r file; do
    mkdir -p "$site/$(dirname "$file")"
    cp "$file" "$site/$file"
  done
fi
site=$(cd "$site" && pwd)
if [ -z "${CTRAN_NVRTC_LIBRARY:-}" ]; then
  CTRAN_NVRTC_LIBRARY=$("$python" -c 'import glob, sysconfig
root = sysconfig.get_paths()["purelib"]
print(*glob.glob(f"{root}/nvidia/cu13/lib/libnvrtc.so.13")[:1])')
  [ -n "$CTRAN_NVRTC_LIBRARY" ] && export CTRAN_NVRTC_LIBRARY || unset CTRAN_NVRTC_LIBRARY
fi
