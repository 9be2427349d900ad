#include "ctran/select/members.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <utility>

#include "ctran/gpu/driver.h"
#include "ctran/select/measured_on_h200.h"

namespace ctran {
namespace {

/// The vendor is taken where it is faster by more than what two measurements of one differ by.
constexpr double kMargin = 0.99;
/// The number of steps between two measured sizes; the choice is made for each of them.
constexpr int kSteps = 16;

double logOf(size_t bytes) { return std::log2(static_cast<double>(std::max<size_t>(bytes, 1))); }

const double* microsOf(const TuningTable::Entry& entry, const std::string& member) {
  for (const auto& [name, us] : entry.micros) {
    if (name == member) return &us;
  }
  return nullptr;
}

}  // namespace

Members::Members(TuningTable table, std::string origin)
    : table_(std::move(table)), origin_(std::move(origin)) {
  std::erase_if(table_.entries, [](const TuningTable::Entry& entry) {
    const double* engine = microsOf(entry, kEngine);
    const double* vendor = microsOf(entry, kVendor);
    return engine == nullptr || vendor == nullptr || !(*engine > 0) || !(*vendor > 0);
  });
  std::sort(table_.entries.begin(), table_.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.kind, a.bytes) < std::pair(b.kind, b.bytes);
  });
  for (size_t i = 0; i < table_.entries.size(); ++i) {
    const TuningTable::Entry& entry = table_.entries[i];
    auto& switches = switches_[entry.kind];
    const auto decideAt = [&](size_t bytes) {
      const bool vendor =
          *micros(entry.kind, bytes, kVendor) < kMargin * *micros(entry.kind, bytes, kEngine);
      if (switches.empty() || switches.back().vendor != vendor) switches.push_back({bytes, vendor});
    };
    const bool first = i == 0 || table_.entries[i - 1].kind != entry.kind;
    if (!first) {
      const double from = logOf(table_.entries[i - 1].bytes), to = logOf(entry.bytes);
      for (int step = 1; step < kSteps; ++step) {
        decideAt(static_cast<size_t>(std::exp2(from + (to - from) * step / kSteps)));
      }
    }
    decideAt(first ? 0 : entry.bytes);
  }
}

std::optional<double> Members::micros(CollectiveKind kind, size_t bytes,
                                      const std::string& member) const {
  const TuningTable::Entry* below = nullptr;
  const TuningTable::Entry* above = nullptr;
  for (const TuningTable::Entry& entry : table_.entries) {
    if (entry.kind != kind) continue;
    if (entry.bytes <= bytes) below = &entry;
    if (entry.bytes >= bytes && above == nullptr) above = &entry;
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr) return *microsOf(*above, member);
  if (above == nullptr) {  // as much longer as there is more
    return *microsOf(*below, member) * static_cast<double>(bytes) /
           static_cast<double>(std::max<size_t>(below->bytes, 1));
  }
  const double low = *microsOf(*below, member), high = *microsOf(*above, member);
  const double span = logOf(above->bytes) - logOf(below->bytes);
  const double part = span > 0 ? (logOf(bytes) - logOf(below->bytes)) / span : 0;
  return std::exp2(std::log2(low) + part * (std::log2(high) - std::log2(low)));
}

bool Members::takesVendor(CollectiveKind kind, size_t bytes) const {
  const auto known = switches_.find(kind);
  if (known == switches_.end()) return false;
  bool vendor = false;
  for (const Switch& one : known->second) {
    if (one.from > bytes) break;
    vendor = one.vendor;
  }
  return vendor;
}

std::string gpuMachine(int device) {
  std::string key = "gpu-" + gpu::deviceName(device);
  for (char& c : key) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  return key;
}

TuningTable measuredOnH200(int ranks) {
  TuningTable table;
  table.machine = "NVIDIA H200";
  table.ranks = ranks < 3 ? 2 : 4;
  std::istringstream lines(table.ranks == 2 ? kMeasuredOn2H200 : kMeasuredOn4H200);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const Json row = Json::parse(line, "the measurements on H200");
    if (row.find("ctran_us") == nullptr || row.find("nccl_us") == nullptr) continue;
    const auto kind = collectiveKindNamed(row.at("op").asString());
    if (!kind) continue;
    auto bytes = static_cast<size_t>(row.at("bytes").asInt());
    // There, bytes are the whole of what is gathered.
    if (*kind == CollectiveKind::AllGather) bytes /= table.ranks;
    table.entries.push_back({*kind,
                             bytes,
                             {{Members::kEngine, row.at("ctran_us").asDouble()},
                              {Members::kVendor, row.at("nccl_us").asDouble()}}});
  }
  return table;
}

}  // namespace ctran
