// The backends that this source makes: the same code over libraries of one interface.

#include "torchcomms/csrc/backends/nccl/vendors.hpp"

#include <algorithm>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <iterator>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/nccl/backend.hpp"
#include "torchcomms/csrc/backends/nccl/library.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::gpu::Platform;

const ctran::ConfigString kNcclLibrary{
    "TORCHCOMMS_NCCL_LIBRARY", "",
    "Path of the library behind backends nccl and ncclx, instead of the libnccl.so.2 that torch "
    "has loaded."};
const ctran::ConfigString kNcclxLibrary{"TORCHCOMMS_NCCLX_LIBRARY", "",
                                        "Path of the library behind backend ncclx."};
const ctran::ConfigString kRcclLibrary{
    "TORCHCOMMS_RCCL_LIBRARY", "",
    "Path of the library behind backend rccl, instead of librccl.so.1."};
const ctran::ConfigString kRcclxLibrary{"TORCHCOMMS_RCCLX_LIBRARY", "",
                                        "Path of the library behind backend rcclx."};

constexpr const char* kNcclHint =
    "install a torch with CUDA, which brings NCCL, or the package nvidia-nccl-cu13";
constexpr const char* kRcclHint = "install a torch for ROCm, which brings RCCL";

const Vendor kVendors[] = {
    {"nccl",
     "NCCL",
     "TORCHCOMMS_NCCL_LIBRARY",
     {"libnccl.so.2", "libnccl.so"},
     Platform::Cuda,
     kNcclHint},
    {"ncclx",
     "NCCLX",
     "TORCHCOMMS_NCCLX_LIBRARY",
     {"libncclx.so.2", "libncclx.so", "libnccl.so.2", "libnccl.so"},
     Platform::Cuda,
     kNcclHint},
    {"rccl",
     "RCCL",
     "TORCHCOMMS_RCCL_LIBRARY",
     {"librccl.so.1", "librccl.so"},
     Platform::Hip,
     kRcclHint},
    {"rcclx",
     "RCCLX",
     "TORCHCOMMS_RCCLX_LIBRARY",
     {"librcclx.so.1", "librcclx.so", "librccl.so.1", "librccl.so"},
     Platform::Hip,
     kRcclHint},
};

/// A static object that registers the backend of a vendor.
struct Registration {
  explicit Registration(const char* backend)
      : registered(backend, [backend] { return std::make_shared<NcclBackend>(vendorOf(backend)); },
                   {.canReconfigure = true}) {}
  BackendRegistration registered;
};

#if TORCHCOMMS_USE_NCCL
const Registration kNccl("nccl");
#endif
#if TORCHCOMMS_USE_RCCL
const Registration kRccl("rccl");
#endif
#if TORCHCOMMS_USE_RCCLX
const Registration kRcclx("rcclx");
#endif

}  // namespace

const Vendor& vendorOf(const std::string& backend) {
  for (const Vendor& vendor : kVendors) {
    if (backend == vendor.backend) return vendor;
  }
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, "No vendor's library is behind " + backend);
}

bool isVendor(const std::string& backend) {
  return std::any_of(std::begin(kVendors), std::end(kVendors),
                     [&](const Vendor& vendor) { return backend == vendor.backend; });
}

void requireAllocator(const std::string& backend) {
  const Library& library = Library::of(vendorOf(backend));
  library.require(library.memAlloc, "mem_allocator", 21900);
}

std::string libraryPath(const Vendor& vendor) {
  const std::string backend = vendor.backend;
  if (backend == "nccl") return kNcclLibrary.get();
  if (backend == "rccl") return kRcclLibrary.get();
  const bool nvidia = vendor.platform == Platform::Cuda;
  const std::string own = nvidia ? kNcclxLibrary.get() : kRcclxLibrary.get();
  if (!own.empty()) return own;
  return nvidia ? kNcclLibrary.get() : kRcclLibrary.get();
}

}  // namespace torch::comms::nccl
