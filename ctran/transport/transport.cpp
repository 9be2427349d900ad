#include "ctran/transport/transport.h"

namespace ctran {
namespace {

[[noreturn]] void throwUnsupported(const Transport& transport, const char* what) {
  throw Error(ErrorKind::Unsupported,
              "the transport " + std::string(transport.name()) + " has no " + what);
}

}  // namespace

Inbound::~Inbound() { transport.release(*this); }
Outbound::~Outbound() { transport.release(*this); }

std::unique_ptr<MemoryRegistration> Transport::registerMemory(std::span<std::byte>, int) {
  throwUnsupported(*this, "registered memory");
}

std::unique_ptr<Transfer> Transport::put(int, const RemoteMemory&, size_t,
                                         std::span<const std::byte>) {
  throwUnsupported(*this, "put");
}

std::unique_ptr<Transfer> Transport::get(int, const RemoteMemory&, size_t, std::span<std::byte>) {
  throwUnsupported(*this, "get");
}

std::unique_ptr<Transfer> Transport::add(int, const RemoteMemory&, size_t, uint64_t) {
  throwUnsupported(*this, "atomic add");
}

}  // namespace ctran
