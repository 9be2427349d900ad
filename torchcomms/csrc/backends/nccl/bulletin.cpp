#include "torchcomms/csrc/backends/nccl/bulletin.hpp"

#include <charconv>
#include <thread>

namespace torch::comms::nccl {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kErrorKey = "broken";
constexpr milliseconds kPause{20};

std::string waitingKey(int rank) { return "waiting/" + std::to_string(rank); }

std::string textOf(const std::vector<uint8_t>& value) { return {value.begin(), value.end()}; }

/// "kind rank text".
std::optional<ctran::Error> parsed(const std::string& text) {
  int kind = 0;
  int rank = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, kind);
  if (first.ec != std::errc() || first.ptr == end) return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, rank);
  if (second.ec != std::errc() || second.ptr == end) return std::nullopt;
  return ctran::Error(static_cast<ctran::ErrorKind>(kind),
                      "Rank " + std::to_string(rank) + ": " + std::string(second.ptr + 1, end),
                      {rank});
}

}  // namespace

void Bulletin::announceError(const ctran::Error& error) noexcept {
  try {
    if (store_->check({kErrorKey})) return;
    store_->set(kErrorKey, std::to_string(static_cast<int>(error.kind())) + " " +
                               std::to_string(rank_) + " " + error.what());
  } catch (const std::exception&) {
  }
}

std::optional<ctran::Error> Bulletin::readError() noexcept {
  try {
    if (!store_->check({kErrorKey})) return std::nullopt;
    return parsed(textOf(store_->get(kErrorKey)));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<int> Bulletin::findMissing(uint64_t sequence, milliseconds patience) noexcept {
  std::vector<int> missing;
  try {
    store_->set(waitingKey(rank_), std::to_string(sequence));
    const Clock::time_point deadline = Clock::now() + patience;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const std::string key = waitingKey(r);
      while (!store_->check({key}) && Clock::now() < deadline) std::this_thread::sleep_for(kPause);
      if (!store_->check({key}) || std::stoull(textOf(store_->get(key))) < sequence) {
        missing.push_back(r);
      }
    }
  } catch (const std::exception&) {
    missing.clear();  // nothing is known
  }
  return missing;
}

}  // namespace torch::comms::nccl
