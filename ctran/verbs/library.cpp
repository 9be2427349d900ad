#include "ctran/verbs/library.h"

#include <dlfcn.h>

#include <cstring>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"

namespace ibverbx {
namespace {

using ctran::ErrorKind;

#ifndef IBVERBX_BUILD_RDMA_CORE
const ctran::ConfigString kVerbsLibrary{"CTRAN_VERBS_LIBRARY", "",
                                        "Path of the RDMA library, instead of libibverbs.so.1."};
#endif

constexpr const char* kInstall =
    "install rdma-core (Debian and Ubuntu: libibverbs1 and ibverbs-providers; Fedora: "
    "libibverbs), version 22 or later";

/// Before Linux 5.12 a process that forks and then writes to registered memory gets other pages
/// than its devices have, unless the child is not given those (MADV_DONTFORK), which the library
/// sees to once it is asked, on any Linux: the child then ends when it reads what shares a page
/// with registered memory.
int makeForksSafe() {
  const VerbsLibrary& library = VerbsLibrary::get();
  if (library.is_fork_initialized && library.is_fork_initialized() == IBV_FORK_UNNEEDED) return 0;
  const int errnum = library.fork_init();
  if (errnum != 0) {
    ctran::log(ctran::LogComponent::Transport, ctran::LogLevel::Warn,
               "RDMA may miss what is written after a fork, on a Linux before 5.12: ibv_fork_init: "
               "%s",
               std::strerror(errnum));
  }
  return errnum;
}

}  // namespace

VerbsLibrary VerbsLibrary::load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    throw ctran::Error(ErrorKind::Unsupported,
                       std::string("the RDMA library could not be loaded: ") + dlerror(), {}, {},
                       kInstall);
  }
  VerbsLibrary table;
  std::string missing;
#define CTRAN_FIND(name, version, ...) \
  table.name = reinterpret_cast<decltype(table.name)>(dlvsym(library, "ibv_" #name, version));
#define CTRAN_RESOLVE(name, version, ...) \
  CTRAN_FIND(name, version)               \
  if (!table.name) missing += std::string(missing.empty() ? "" : ", ") + "ibv_" #name "@" version;
  CTRAN_VERBS_FUNCTIONS(CTRAN_RESOLVE)
  CTRAN_VERBS_OPTIONAL_FUNCTIONS(CTRAN_FIND)
#undef CTRAN_RESOLVE
#undef CTRAN_FIND
  if (!missing.empty()) {
    throw ctran::Error(ErrorKind::Unsupported,
                       "the RDMA library " + std::string(path) + " lacks " + missing, {}, {},
                       kInstall);
  }
  table.query_gid_ex = reinterpret_cast<decltype(table.query_gid_ex)>(
      dlvsym(library, "_ibv_query_gid_ex", "IBVERBS_1.11"));
  return table;
}

#ifndef IBVERBX_BUILD_RDMA_CORE
const VerbsLibrary& VerbsLibrary::get() {
  static const VerbsLibrary table = [] {
    const std::string path = kVerbsLibrary.get();
    return load(path.empty() ? "libibverbs.so.1" : path.c_str());
  }();
  return table;
}
#endif

Maybe ibvInit() {
  try {
    static const int forkErrnum = makeForksSafe();
    static_cast<void>(forkErrnum);
    return Unit{};
  } catch (const ctran::Error& error) {
    return Error{ENOSYS, error.what()};
  }
}

}  // namespace ibverbx
