// A stand-in for libnvrtc.so: compiles device code with the host's compiler to a shared library,
// which the stand-in for the driver loads as a module.

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#define STAND_IN extern "C" __attribute__((visibility("default")))

namespace {

namespace fs = std::filesystem;

struct Program {
  fs::path folder;
  std::string log;
  std::string image;
};

std::string contentOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

/// Not one that NVIDIA has: the disk cache must not mix the two up.
STAND_IN int nvrtcVersion(int* major, int* minor) {
  *major = 0;
  *minor = 1;
  return 0;
}

STAND_IN int nvrtcCreateProgram(Program** program, const char* source, const char*, int count,
                                const char* const* headers, const char* const* names) {
  std::string folder = (fs::temp_directory_path() / "stand-in-nvrtc-XXXXXX").string();
  if (!mkdtemp(folder.data())) return 1;
  *program = new Program{folder, {}, {}};
  for (int i = 0; i < count; ++i) {
    const fs::path path = (*program)->folder / names[i];
    fs::create_directories(path.parent_path());
    std::ofstream(path) << headers[i];
  }
  std::ofstream((*program)->folder / "source.cpp") << source;
  return 0;
}

STAND_IN int nvrtcDestroyProgram(Program** program) {
  fs::remove_all((*program)->folder);
  delete *program;
  return 0;
}

STAND_IN int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  const char* compiler = getenv("CXX");
  const std::string folder = program->folder.string();
  std::string command = std::string(compiler ? compiler : "c++") +
                        " -std=c++20 -O1 -fPIC -shared -fvisibility=hidden -I" + folder;
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], "-D", 2) == 0) command += std::string(" ") + options[i];
  }
  command += " -ffp-contract=off " + folder + "/source.cpp -o " + folder + "/module.so >" + folder +
             "/log 2>&1";
  const int result = std::system(command.c_str());
  program->log = contentOf(program->folder / "log") + '\0';
  program->image = contentOf(program->folder / "module.so");
  return result == 0 ? 0 : 6;
}

STAND_IN int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  *bytes = program->log.size();
  return 0;
}

STAND_IN int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.data(), program->log.size());
  return 0;
}

STAND_IN int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  *bytes = program->image.size();
  return 0;
}

STAND_IN int nvrtcGetCUBIN(Program* program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return 0;
}
