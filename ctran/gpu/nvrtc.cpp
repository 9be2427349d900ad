#include "ctran/gpu/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/gpu/device_source.h"
#include "ctran/gpu/disk_cache.h"
#include "ctran/gpu/libraries.h"

namespace ctran::gpu {
namespace {

const ConfigString kNvrtcLibrary{"CTRAN_NVRTC_LIBRARY", "",
                                 "Path of the compiler's library, instead of libnvrtc.so.13 or 12.",
                                 "path"};

using Program = struct ProgramTag*;

// X(member, exported symbol, parameters...)
#define CTRAN_NVRTC_FUNCTIONS(X)                                                                 \
  X(version, "nvrtcVersion", int* major, int* minor)                                             \
  X(createProgram, "nvrtcCreateProgram", Program* program, const char* source, const char* name, \
    int headerCount, const char* const* headers, const char* const* includeNames)                \
  X(destroyProgram, "nvrtcDestroyProgram", Program* program)                                     \
  X(compileProgram, "nvrtcCompileProgram", Program program, int optionCount,                     \
    const char* const* options)                                                                  \
  X(getProgramLogSize, "nvrtcGetProgramLogSize", Program program, size_t* bytes)                 \
  X(getProgramLog, "nvrtcGetProgramLog", Program program, char* log)                             \
  X(getCubinSize, "nvrtcGetCUBINSize", Program program, size_t* bytes)                           \
  X(getCubin, "nvrtcGetCUBIN", Program program, char* cubin)

struct Nvrtc {
#define CTRAN_MEMBER(name, symbol, ...) int (*name)(__VA_ARGS__) = nullptr;
  CTRAN_NVRTC_FUNCTIONS(CTRAN_MEMBER)
#undef CTRAN_MEMBER
  int major = 0;
  int minor = 0;

  static const Nvrtc& get();
};

int addSitePackages(dl_phdr_info* object, size_t, void* data) {
  constexpr std::string_view kMark = "/site-packages/";
  auto& roots = *static_cast<std::vector<std::string>*>(data);
  std::string path = object->dlpi_name ? object->dlpi_name : "";
  size_t mark = path.rfind(kMark);
  if (mark == std::string::npos) return 0;
  std::string root = path.substr(0, mark + kMark.size());
  if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  return 0;
}

void* openNvrtc() {
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (kNvrtcLibrary.isSet()) break;
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return library;
  }
  std::string looked;
  for (const std::string& path : nvrtcCandidates()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    looked += "\n  " + std::string(dlerror());
  }
  throw Error(ErrorKind::Unsupported,
              "the CUDA run-time compiler (libnvrtc) was not found:" + looked, {}, {},
              "torch's CUDA wheels bring it (pip install nvidia-cuda-nvrtc); or set "
              "CTRAN_NVRTC_LIBRARY to the path of libnvrtc.so");
}

Nvrtc loadNvrtc() {
  void* library = openNvrtc();
  Nvrtc nvrtc;
  std::string missing;
#define CTRAN_RESOLVE(name, symbol, ...)                                       \
  nvrtc.name = reinterpret_cast<decltype(nvrtc.name)>(dlsym(library, symbol)); \
  if (!nvrtc.name) missing += std::string(missing.empty() ? "" : ", ") + symbol;
  CTRAN_NVRTC_FUNCTIONS(CTRAN_RESOLVE)
#undef CTRAN_RESOLVE
  if (!missing.empty()) {
    throw Error(ErrorKind::Unsupported, "libnvrtc lacks " + missing, {}, {},
                "use NVRTC of CUDA 12.3 or later");
  }
  nvrtc.version(&nvrtc.major, &nvrtc.minor);
  return nvrtc;
}

const Nvrtc& Nvrtc::get() {
  static const Nvrtc nvrtc = loadNvrtc();
  return nvrtc;
}

std::vector<std::string> optionsOf(const CompileRequest& request) {
  std::vector<std::string> options = {"--gpu-architecture=" + request.architecture, "--std=c++20",
                                      "--device-as-default-execution-space",
                                      // A product rounds the same whether its rank or another
                                      // adds it up: fused, it would not.
                                      "--fmad=false"};
  for (const std::string& define : request.defines) options.push_back("-D" + define);
  return options;
}

std::string cacheNameOf(const CompileRequest& request) {
  Digest digest;
  auto add = [&](std::string_view text) {
    digest.add(std::to_string(text.size())).add(":").add(text);
  };
  add(request.source);
  for (const std::string& option : optionsOf(request)) add(option);
  for (const DeviceSource& header : deviceSources()) {
    add(header.path);
    add(header.text);
  }
  auto [major, minor] = nvrtcVersion();
  add(std::to_string(major) + "." + std::to_string(minor));
  return request.name + "-" + request.architecture + "-" + digest.hex() + ".cubin";
}

}  // namespace

std::vector<std::string> nvrtcCandidates() {
  if (kNvrtcLibrary.isSet()) return {kNvrtcLibrary.get()};
  std::vector<std::string> directories;
  std::vector<std::string> sitePackages;
  dl_iterate_phdr(addSitePackages, &sitePackages);
  for (const std::string& root : sitePackages) {
    directories.push_back(root + "nvidia/cu13/lib/");
    directories.push_back(root + "nvidia/cuda_nvrtc/lib/");
  }
  for (std::string& folder : libraryFolders(Home::Cuda)) directories.push_back(std::move(folder));
  if (const char* root = getenv("CUDA_PATH")) directories.push_back(std::string(root) + "/lib64/");
  directories.push_back("/usr/local/cuda/lib64/");
  directories.push_back("");
  std::vector<std::string> candidates;
  for (const std::string& directory : directories) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
      candidates.push_back(directory + name);
    }
  }
  return candidates;
}

std::pair<int, int> nvrtcVersion() {
  const Nvrtc& nvrtc = Nvrtc::get();
  return {nvrtc.major, nvrtc.minor};
}

std::string compileUncached(const CompileRequest& request) {
  const Nvrtc& nvrtc = Nvrtc::get();
  std::vector<std::string> texts;  // NVRTC wants terminated strings
  std::vector<std::string> names;
  for (const DeviceSource& header : deviceSources()) {
    texts.emplace_back(header.text);
    names.emplace_back(header.path);
  }
  auto pointers = [](const std::vector<std::string>& strings) {
    std::vector<const char*> result;
    for (const std::string& string : strings) result.push_back(string.c_str());
    return result;
  };
  const std::vector<std::string> options = optionsOf(request);
  Program program = nullptr;
  const std::string fileName = request.name + ".cu";
  int result = nvrtc.createProgram(&program, request.source.c_str(), fileName.c_str(),
                                   static_cast<int>(texts.size()), pointers(texts).data(),
                                   pointers(names).data());
  std::string cubin;
  std::string log;
  if (result == 0) {
    result =
        nvrtc.compileProgram(program, static_cast<int>(options.size()), pointers(options).data());
    size_t bytes = 0;
    if (nvrtc.getProgramLogSize(program, &bytes) == 0 && bytes > 1) {
      log.resize(bytes);
      nvrtc.getProgramLog(program, log.data());
    }
    if (result == 0) result = nvrtc.getCubinSize(program, &bytes);
    if (result == 0) {
      cubin.resize(bytes);
      result = nvrtc.getCubin(program, cubin.data());
    }
    nvrtc.destroyProgram(&program);
  }
  if (result != 0 || cubin.empty()) {
    throw Error(ErrorKind::InvalidArgument, "compiling " + request.name + " for " +
                                                request.architecture + " failed (NVRTC error " +
                                                std::to_string(result) + "):\n" + log);
  }
  return cubin;
}

std::string compile(const CompileRequest& request) {
  static const DiskCache cache(DiskCache::defaultDirectory());
  return cache.get(cacheNameOf(request), [&] { return compileUncached(request); });
}

}  // namespace ctran::gpu
