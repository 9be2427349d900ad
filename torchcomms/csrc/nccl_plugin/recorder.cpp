#include "torchcomms/csrc/nccl_plugin/recorder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <memory>
#include <mutex>
#include <optional>

#include "ctran/base/config.h"
#include "ctran/base/log.h"
#include "ctran/collective/signature.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"
#include "ctran/trace/operation_trace.h"
#include "torchcomms/csrc/nccl_plugin/names.h"

namespace torchcomms::nccl_plugin {
namespace {

using ctran::Recording;
using ctran::RecordSlot;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr uint64_t kMostCommunicators = 1024;  // of a process

/// The parts of a handle; those of a context are `place` and `life`.
struct Parts {
  uint64_t place : 10;  ///< of the communicator
  uint64_t life : 10;   ///< how many have had the place, from 1
  uint64_t isKernel : 1;
  uint64_t isMessage : 1;
  uint64_t position : 42;  ///< in its ring

  static Parts of(uint64_t number) { return std::bit_cast<Parts>(number); }
  uint64_t number() const { return std::bit_cast<uint64_t>(*this); }
};
static_assert(sizeof(Parts) == 8 && 1 << 10 == kMostCommunicators);

/// A short text in small letters that takes no memory of its own.
class Text {
 public:
  Text& add(std::string_view more) {
    for (const char c : more.substr(0, bytes_.size() - size_)) {
      bytes_[size_++] = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return *this;
  }
  Text& add(int number) {
    std::array<char, 16> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return add({digits.data(), static_cast<size_t>(end - digits.data())});
  }
  std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 128> bytes_;
  size_t size_ = 0;
};

class Communicator {
 public:
  explicit Communicator(const Introduction& who)
      : seesKernels_(who.seesKernels),
        fd_(ctran::createSharedMemory("ctran-nccl", Recording::bytesFor(1))),
        recording_(
            ctran::SharedMapping::map(fd_, Recording::bytesFor(1)), 1, 0,
            Recording::Who{who.rank, who.size, who.name, ctran::processName(), who.comm, 0}) {
    recording_.refuseSettings();
    // People count from the collective after the one that makes a communicator.
    Call creation;
    ctran::OperationTrace trace;
    trace.begin(&recording_, false, recordOf(creation, ctran::CollectiveKind::Barrier), 0, 0, 0);
    trace.ended();
  }
  ~Communicator() { recording_.left(); }

  std::optional<uint64_t> begin(const Call& call) {
    const auto kind = kindOf(call.function);
    if (!kind) return std::nullopt;
    const ctran::OperationRecord record = recordOf(call, *kind);
    const uint64_t bytes = call.count * ctran::sizeOf(typeOf(call.type));
    ctran::OperationTrace trace;
    trace.begin(&recording_, call.isMessage, record, bytes, 0, 0);
    RecordSlot* slot = trace.slot();
    if (slot == nullptr) return std::nullopt;
    trace.chose(choiceOf(call));
    const uint64_t position = slot->version.load(kRelaxed) - 1;
    running(call.isMessage, position) = {position + 1, slot, 0, false};
    return position;
  }

  bool beginKernel(bool isMessage, uint64_t position) {
    Running* operation = find(isMessage, position);
    if (operation == nullptr) return false;
    kernelsCome_ = true;
    // It was called when it was launched, and starts when the GPU comes to it.
    if (!operation->hasStarted) operation->slot->startedAt.store(ctran::ticks(), kRelaxed);
    operation->hasStarted = true;
    operation->slot->endedAt.store(0, std::memory_order_release);
    ++operation->kernels;
    return true;
  }

  void endKernel(bool isMessage, uint64_t position) {
    Running* operation = find(isMessage, position);
    if (operation == nullptr || operation->kernels == 0) return;
    if (--operation->kernels > 0) return;
    operation->slot->endedAt.store(ctran::ticks(), std::memory_order_release);
    endEarlier(isMessage, position);
  }

  void endLaunch(bool isMessage, uint64_t position) {
    Running* operation = find(isMessage, position);
    // Until it is seen that kernels are told of, a launch is all that there is to be told.
    if (operation == nullptr || operation->hasStarted || (seesKernels_ && kernelsCome_)) return;
    operation->slot->endedAt.store(ctran::ticks(), std::memory_order_release);
  }

 private:
  struct Running {
    uint64_t version = 0;
    RecordSlot* slot = nullptr;
    uint32_t kernels = 0;  ///< channels that run
    bool hasStarted = false;
  };

  static ctran::OperationRecord recordOf(const Call& call, ctran::CollectiveKind kind) {
    ctran::Collective c;
    c.kind = kind;
    c.type = typeOf(call.type);
    c.count = static_cast<size_t>(call.count);
    c.root = call.root;
    ctran::OperationRecord record = ctran::makeRecord(c, 0, 0);
    record.what |= ctran::kReductionNotTold;
    return record;
  }

  uint32_t choiceOf(const Call& call) {
    Text algorithm, why;
    algorithm.add("nccl");
    if (!call.algorithm.empty()) algorithm.add("/").add(call.algorithm);
    if (!call.protocol.empty()) why.add(call.protocol).add(", ");
    why.add(call.channels).add(" channels");
    return recording_.choice(algorithm.text(), why.text());
  }

  Running& running(bool isMessage, uint64_t position) {
    return isMessage ? messages_[position % Recording::kMessages]
                     : collectives_[position % Recording::kCollectives];
  }
  Running* find(bool isMessage, uint64_t position) {
    Running& found = running(isMessage, position);
    return found.version == position + 1 ? &found : nullptr;
  }

  /// NCCL runs the operations of a communicator in order: of an earlier one whose kernel it has not
  /// told of, nothing more will come.
  void endEarlier(bool isMessage, uint64_t position) {
    uint64_t& from = isMessage ? messagesEnded_ : collectivesEnded_;
    const uint64_t capacity = isMessage ? Recording::kMessages : Recording::kCollectives;
    if (position > capacity) from = std::max(from, position - capacity);
    for (; from < position; ++from) {
      Running* operation = find(isMessage, from);
      if (operation == nullptr) continue;
      if (operation->kernels > 0) return;
      if (operation->slot->endedAt.load(kRelaxed) == 0) {
        operation->slot->endedAt.store(ctran::ticks(), std::memory_order_release);
      }
    }
  }

  const bool seesKernels_;
  bool kernelsCome_ = false;
  ctran::UniqueFd fd_;  // whoever looks from outside finds the memory by it
  Recording recording_;
  uint64_t collectivesEnded_ = 0, messagesEnded_ = 0;
  std::array<Running, Recording::kCollectives> collectives_;
  std::array<Running, Recording::kMessages> messages_;
};

struct Place {
  std::mutex mutex;
  uint64_t life = 0;
  std::unique_ptr<Communicator> communicator;
};

// Never destroyed: threads of NCCL run until the process ends.
std::array<Place, kMostCommunicators>& places() {
  static auto* const all = new std::array<Place, kMostCommunicators>;
  return *all;
}

/// Calls `use` with the communicator of a handle or context, if it is still there.
template <typename Use>
void with(Parts parts, Use use) {
  Place& place = places()[parts.place];
  const std::lock_guard lock(place.mutex);
  if (place.communicator && place.life == parts.life) use(*place.communicator);
}

bool isOn() {
  const ctran::ConfigVariable* trace = ctran::findConfig("CTRAN_TRACE");
  return trace == nullptr || trace->valueText() != "0";
}

}  // namespace

Context open(const Introduction& who) noexcept try {
  if (!isOn() || who.size < 1 || who.rank < 0 || who.rank >= who.size) return 0;
  auto made = std::make_unique<Communicator>(who);
  for (uint64_t i = 0; i < kMostCommunicators; ++i) {
    Place& place = places()[i];
    const std::lock_guard lock(place.mutex);
    if (place.communicator) continue;
    place.communicator = std::move(made);
    place.life = place.life % (kMostCommunicators - 1) + 1;
    Parts parts{};
    parts.place = i;
    parts.life = place.life;
    return parts.number();
  }
  ctran::log(ctran::LogComponent::Gpu, ctran::LogLevel::Warn,
             "communicator '%s' of NCCL is not recorded: there are %zu others", who.name.c_str(),
             static_cast<size_t>(kMostCommunicators));
  return 0;
} catch (const std::exception& error) {
  ctran::log(ctran::LogComponent::Gpu, ctran::LogLevel::Warn,
             "communicator '%s' of NCCL is not recorded: %s", who.name.c_str(), error.what());
  return 0;
}

void close(Context context) noexcept {
  std::unique_ptr<Communicator> gone;
  const Parts parts = Parts::of(context);
  Place& place = places()[parts.place];
  const std::lock_guard lock(place.mutex);
  if (place.life == parts.life) gone = std::move(place.communicator);
}

Handle begin(Context context, const Call& call) noexcept {
  Handle made = 0;
  Parts parts = Parts::of(context);
  with(parts, [&](Communicator& communicator) {
    const auto position = communicator.begin(call);
    if (!position) return;
    parts.isKernel = 0;
    parts.isMessage = call.isMessage ? 1 : 0;
    parts.position = *position;
    made = parts.number();
  });
  return made;
}

Handle beginKernel(Handle operation) noexcept {
  Handle made = 0;
  Parts parts = Parts::of(operation);
  if (parts.isKernel != 0) return 0;
  with(parts, [&](Communicator& communicator) {
    if (!communicator.beginKernel(parts.isMessage != 0, parts.position)) return;
    parts.isKernel = 1;
    made = parts.number();
  });
  return made;
}

void end(Handle handle) noexcept {
  const Parts parts = Parts::of(handle);
  with(parts, [&](Communicator& communicator) {
    if (parts.isKernel != 0) {
      communicator.endKernel(parts.isMessage != 0, parts.position);
    } else {
      communicator.endLaunch(parts.isMessage != 0, parts.position);
    }
  });
}

}  // namespace torchcomms::nccl_plugin
