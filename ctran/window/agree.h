#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/memory/device_sharing.h"
#include "ctran/window/gpu_window.h"

namespace ctran {

/// What a rank says of how far it has come. Derived structs, plain data, say more.
struct Said {
  bool failed = false;
  ErrorKind kind{};
  char why[400] = {};
};

/// `step(own)` on every rank; what they say of themselves. Throws on all ranks if it has on one.
template <class Own, class Step>
std::vector<Own> agree(GpuWindowHost& host, int rank, const Step& step) {
  Own own{};
  try {
    step(own);
  } catch (const Error& error) {
    own.failed = true;
    own.kind = error.kind();
    std::strncpy(own.why, error.what(), sizeof own.why - 1);
  }
  const auto texts = host.exchange(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  std::vector<Own> all(texts.size());
  for (size_t r = 0; r < texts.size(); ++r) {
    const int number = static_cast<int>(r);
    if (texts[r].size() != sizeof own) {
      throw Error(ErrorKind::System, "Rank " + std::to_string(r) + "'s memory is unreadable",
                  {number});
    }
    std::memcpy(&all[r], texts[r].data(), sizeof own);
    if (!all[r].failed) continue;
    all[r].why[sizeof all[r].why - 1] = '\0';
    const std::string whose = number == rank ? "" : "Rank " + std::to_string(r) + ": ";
    throw Error(all[r].kind, whose + all[r].why, {number}, "window");
  }
  return all;
}

/// The memory of another rank here; errors name it.
inline std::shared_ptr<void> mappedFrom(const SharedRange& range, int rank, int device) {
  try {
    return mapDeviceMemory(range, device);
  } catch (const Error& error) {
    throw Error(error.kind(), "what rank " + std::to_string(rank) + " offers: " + error.message(),
                {rank}, "window", error.hint());
  }
}

}  // namespace ctran
