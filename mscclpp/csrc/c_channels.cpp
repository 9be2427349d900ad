#include <algorithm>
#include <cstdint>
#include <limits>
#include <variant>

#include "c_api.h"
#include "mscclpp/fifo.hpp"
#include "mscclpp/memory_channel.hpp"
#include "mscclpp/port_channel.hpp"
#include "mscclpp/switch_channel.hpp"

using namespace mscclpp;
using c_api::guarded;
using c_api::pointerOr;

namespace {

using HostToDevice = std::shared_ptr<Host2DeviceSemaphore>;
using HostToHost = std::shared_ptr<Host2HostSemaphore>;
using DeviceToDevice = std::shared_ptr<MemoryDevice2DeviceSemaphore>;
using Service = std::shared_ptr<ProxyService>;
using Nvls = std::shared_ptr<NvlsConnection>;
using Queue = std::shared_ptr<Fifo>;
using Value =
    std::variant<std::shared_future<Connection>, std::shared_future<RegisteredMemory>,
                 std::shared_future<Semaphore>, Connection, RegisteredMemory, Semaphore,
                 HostToDevice, HostToHost, DeviceToDevice, BaseMemoryChannel, MemoryChannel,
                 Service, BasePortChannel, PortChannel, Queue, Nvls, SwitchChannel>;

}  // namespace

struct mscclpp_object {
  Value value;
};

namespace {

template <class T>
const T& as(const mscclpp_object* object) {
  const T* const found = object == nullptr ? nullptr : std::get_if<T>(&object->value);
  if (found == nullptr) throw Error("the object is of another kind", ErrorCode::InvalidUsage);
  return *found;
}
template <class T>
T& as(mscclpp_object* object) {
  return const_cast<T&>(as<T>(static_cast<const mscclpp_object*>(object)));
}

template <class Body>
mscclpp_object* objectOr(const Body& body) {
  return pointerOr([&] { return new mscclpp_object{Value(body())}; });
}

template <class Body>
int codeOf(const Body& body) {
  return detail::guarded(body);
}

/// What `body` returns, or `otherwise` if it throws.
template <class T, class Body>
T valueOr(T otherwise, const Body& body) {
  T value = otherwise;
  codeOf([&] { value = body(); });
  return value;
}

TransportFlags flagsOf(uint64_t bits) {
  TransportFlags flags;
  for (size_t t = 0; t < kTransports; ++t) {
    if ((bits >> t & 1) != 0) flags |= static_cast<Transport>(t);
  }
  return flags;
}

/// The bytes of a device handle, for what has one.
struct HandleBytes {
  void* to;
  size_t capacity;

  template <class T>
  size_t operator()(const T& object) const {
    if constexpr (requires { object.deviceHandle(); }) {
      return write(object.deviceHandle());
    } else if constexpr (requires { object->deviceHandle(); }) {
      return write(object->deviceHandle());
    } else {
      throw Error("kernels take no such object", ErrorCode::InvalidUsage);
    }
  }

  template <class Handle>
  size_t write(const Handle& handle) const {
    static_assert(std::is_trivially_copyable_v<Handle>);
    if (sizeof handle <= capacity) std::memcpy(to, &handle, sizeof handle);
    return sizeof handle;
  }
};

}  // namespace

void mscclpp_object_free(mscclpp_object* object) { delete object; }

mscclpp_object* mscclpp_future_get(mscclpp_object* future) {
  return objectOr([&]() -> Value {
    if (future != nullptr) {
      if (auto* const found = std::get_if<std::shared_future<Connection>>(&future->value)) {
        return found->get();
      }
      if (auto* const found = std::get_if<std::shared_future<RegisteredMemory>>(&future->value)) {
        return found->get();
      }
    }
    return as<std::shared_future<Semaphore>>(future).get();
  });
}

size_t mscclpp_device_handle(const mscclpp_object* object, void* to, size_t capacity) {
  return valueOr<size_t>(0, [&] { return std::visit(HandleBytes{to, capacity}, object->value); });
}

mscclpp_object* mscclpp_connect(mscclpp_communicator* communicator, int peer, int tag,
                                int transport, int device_type, int device,
                                int max_write_queue_size) {
  return objectOr([&] {
    const EndpointConfig config(static_cast<Transport>(transport),
                                Device(static_cast<DeviceType>(device_type), device),
                                max_write_queue_size);
    return communicator->communicator->connect(config, peer, tag);
  });
}

int mscclpp_connection_transport(const mscclpp_object* connection, int remote) {
  return valueOr(0, [&] {
    const auto& known = as<Connection>(connection);
    return static_cast<int>(remote != 0 ? known.remoteTransport() : known.transport());
  });
}
int mscclpp_connection_write(mscclpp_object* connection, const mscclpp_object* to,
                             uint64_t to_offset, const mscclpp_object* from, uint64_t from_offset,
                             uint64_t bytes) {
  return codeOf([&] {
    as<Connection>(connection)
        .write(as<RegisteredMemory>(to), to_offset, as<RegisteredMemory>(from), from_offset, bytes);
  });
}
int mscclpp_connection_update_and_sync(mscclpp_object* connection, const mscclpp_object* to,
                                       uint64_t to_offset, uint64_t* source, uint64_t value) {
  return codeOf([&] {
    as<Connection>(connection).updateAndSync(as<RegisteredMemory>(to), to_offset, source, value);
  });
}
int mscclpp_connection_flush(mscclpp_object* connection, int64_t timeout_us) {
  return codeOf([&] { as<Connection>(connection).flush(timeout_us); });
}

mscclpp_object* mscclpp_register_memory(mscclpp_communicator* communicator, void* data,
                                        size_t bytes, uint64_t transports) {
  return objectOr(
      [&] { return communicator->communicator->registerMemory(data, bytes, flagsOf(transports)); });
}
int mscclpp_send_memory(mscclpp_communicator* communicator, const mscclpp_object* memory, int peer,
                        int tag) {
  return codeOf(
      [&] { communicator->communicator->sendMemory(as<RegisteredMemory>(memory), peer, tag); });
}
mscclpp_object* mscclpp_receive_memory(mscclpp_communicator* communicator, int peer, int tag) {
  return objectOr([&] { return communicator->communicator->recvMemory(peer, tag); });
}
void* mscclpp_memory_data(const mscclpp_object* memory) {
  return pointerOr([&] { return as<RegisteredMemory>(memory).data(); });
}
size_t mscclpp_memory_size(const mscclpp_object* memory) {
  return valueOr<size_t>(0, [&] { return as<RegisteredMemory>(memory).size(); });
}
uint64_t mscclpp_memory_transports(const mscclpp_object* memory) {
  return valueOr<uint64_t>(0, [&] { return as<RegisteredMemory>(memory).transports().to_ulong(); });
}

mscclpp_object* mscclpp_build_semaphore(mscclpp_communicator* communicator,
                                        const mscclpp_object* connection, int peer, int tag) {
  return objectOr([&] {
    return communicator->communicator->buildSemaphore(as<Connection>(connection), peer, tag);
  });
}
mscclpp_object* mscclpp_host_to_device_semaphore(const mscclpp_object* semaphore) {
  return objectOr([&] { return std::make_shared<Host2DeviceSemaphore>(as<Semaphore>(semaphore)); });
}
mscclpp_object* mscclpp_host_to_host_semaphore(const mscclpp_object* semaphore) {
  return objectOr([&] { return std::make_shared<Host2HostSemaphore>(as<Semaphore>(semaphore)); });
}
mscclpp_object* mscclpp_device_to_device_semaphore(const mscclpp_object* semaphore) {
  return objectOr(
      [&] { return std::make_shared<MemoryDevice2DeviceSemaphore>(as<Semaphore>(semaphore)); });
}
int mscclpp_semaphore_signal(mscclpp_object* semaphore) {
  return codeOf([&] {
    if (semaphore != nullptr && std::holds_alternative<HostToDevice>(semaphore->value)) {
      as<HostToDevice>(semaphore)->signal();
    } else {
      as<HostToHost>(semaphore)->signal();
    }
  });
}
int mscclpp_semaphore_poll(mscclpp_object* semaphore) {
  return valueOr(-1, [&] { return as<HostToHost>(semaphore)->poll() ? 1 : 0; });
}
int mscclpp_semaphore_wait(mscclpp_object* semaphore, int64_t max_spins) {
  return codeOf([&] { as<HostToHost>(semaphore)->wait(max_spins); });
}

mscclpp_object* mscclpp_memory_channel(const mscclpp_object* semaphore, const mscclpp_object* to,
                                       const mscclpp_object* from, void* packets) {
  return objectOr([&]() -> Value {
    const bool isBuilt =
        semaphore != nullptr && std::holds_alternative<Semaphore>(semaphore->value);
    const DeviceToDevice own =
        isBuilt ? std::make_shared<MemoryDevice2DeviceSemaphore>(as<Semaphore>(semaphore))
                : as<DeviceToDevice>(semaphore);
    if (to == nullptr) return BaseMemoryChannel(own);
    return MemoryChannel(own, as<RegisteredMemory>(to), as<RegisteredMemory>(from), packets);
  });
}

mscclpp_object* mscclpp_proxy_service(int fifo_size, int device_type) {
  return objectOr([&] {
    return std::make_shared<ProxyService>(fifo_size, static_cast<DeviceType>(device_type));
  });
}
int64_t mscclpp_proxy_add(mscclpp_object* service, const mscclpp_object* object) {
  return valueOr<int64_t>(-1, [&]() -> int64_t {
    ProxyService& proxy = *as<Service>(service);
    if (object != nullptr && std::holds_alternative<Semaphore>(object->value)) {
      return proxy.addSemaphore(as<Semaphore>(object));
    }
    if (object != nullptr && std::holds_alternative<HostToDevice>(object->value)) {
      return proxy.addSemaphore(as<HostToDevice>(object));
    }
    return proxy.addMemory(as<RegisteredMemory>(object));
  });
}
int mscclpp_proxy_start(mscclpp_object* service, int blocking) {
  return codeOf([&] { as<Service>(service)->startProxy(blocking != 0); });
}
int mscclpp_proxy_stop(mscclpp_object* service) {
  return codeOf([&] { as<Service>(service)->stopProxy(); });
}
mscclpp_object* mscclpp_port_channel(mscclpp_object* service, uint32_t semaphore, int64_t to,
                                     int64_t from) {
  return objectOr([&]() -> Value {
    ProxyService& proxy = *as<Service>(service);
    if (to < 0 && from < 0) return proxy.basePortChannel(semaphore);
    constexpr int64_t kMost = std::numeric_limits<MemoryId>::max();
    if (std::min(to, from) < 0 || std::max(to, from) > kMost) {
      throw Error("memories of a proxy service are numbered from 0 on", ErrorCode::InvalidUsage);
    }
    return proxy.portChannel(semaphore, static_cast<MemoryId>(to), static_cast<MemoryId>(from));
  });
}

mscclpp_object* mscclpp_fifo(int size, int device_type) {
  return objectOr(
      [&] { return std::make_shared<Fifo>(size, static_cast<DeviceType>(device_type)); });
}
int mscclpp_fifo_poll(mscclpp_object* fifo, uint64_t words[4]) {
  return valueOr(-1, [&] {
    ProxyTrigger trigger;
    if (!as<Queue>(fifo)->poll(trigger)) return 0;
    const uint64_t all[] = {trigger.fst, trigger.snd, trigger.trd, trigger.fth};
    std::copy(all, all + 4, words);
    return 1;
  });
}
int mscclpp_fifo_pop(mscclpp_object* fifo) {
  return codeOf([&] { as<Queue>(fifo)->pop(); });
}

mscclpp_object* mscclpp_connect_nvls(mscclpp_communicator* communicator, const int* ranks,
                                     size_t count, size_t bytes) {
  return objectOr([&] {
    return connectNvlsCollective(communicator->communicator, std::vector<int>(ranks, ranks + count),
                                 bytes);
  });
}
mscclpp_object* mscclpp_bind_memory(mscclpp_object* connection, void* data, size_t bytes) {
  return objectOr([&] {
    return as<Nvls>(connection)->bindAllocatedMemory(reinterpret_cast<CUdeviceptr>(data), bytes);
  });
}
