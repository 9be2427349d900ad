#include "ctran/transport/ib/settings.h"

#include <algorithm>
#include <charconv>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/text.h"

namespace ctran {
namespace {

const ConfigBool kEnabled{
    "CTRAN_IB", true,
    "Whether ranks of different hosts use RDMA where both have it. Otherwise they use TCP."};

class HcaVariable : public ConfigString {
 public:
  using ConfigString::ConfigString;
  void check(const std::string& text) const override { static_cast<void>(HcaFilter(text)); }
};

const HcaVariable kHca{
    "CTRAN_IB_HCA", "",
    "RDMA devices to use: names they begin with (mlx5), with = exact names and ports (=mlx5_0:1), "
    "with ^ all but these (^mlx5_3); several with commas. Empty: those with an active port, of "
    "which "
    "those nearest to the process's cores are used as long as they work."};
const ConfigInt kGidIndex{
    "CTRAN_IB_GID_INDEX", -1,
    "Entry of a port's GID table to use. -1: a RoCE v2 entry, an IPv4 address before a routable "
    "IPv6 address before a link-local one.",
    -1, 255};
const ConfigInt kTrafficClass{"CTRAN_IB_TRAFFIC_CLASS", 0, "Traffic class of RDMA packets.", 0,
                              255};
const ConfigInt kServiceLevel{"CTRAN_IB_SERVICE_LEVEL", 0, "Service level of RDMA packets.", 0, 15};
const ConfigInt kTimeout{
    "CTRAN_IB_TIMEOUT", 16,
    "An RDMA packet that is not acknowledged is sent again after 4.096 us * 2^this.", 1, 31};
const ConfigInt kRetry{"CTRAN_IB_RETRY", 6,
                       "How often an RDMA packet is sent again before the connection fails.", 0, 7};
const ConfigChoice kMtu{"CTRAN_IB_MTU", "auto|256|512|1024|2048|4096", "auto",
                        "Bytes of an RDMA packet. auto: what the ports of both ends have active."};
const ConfigInt kQps{
    "CTRAN_IB_QPS", 1,
    "Queue pairs of a pair of ranks. Large messages are spread over them; the same on all ranks.",
    1, 16};
const ConfigInt kRails{
    "CTRAN_IB_RAILS", kMaxRails,
    "How many devices a pair of ranks uses together for large messages, where both ends have as "
    "many.",
    1, kMaxRails};
const ConfigBool kFailOver{
    "CTRAN_IB_FAIL_OVER", true,
    "Whether a pair of ranks whose RDMA connection fails goes on over another device, or TCP. "
    "Otherwise the communicator fails."};
const ConfigBytes kRing{
    "CTRAN_IB_RING", 1 << 20,
    "Registered memory for what a pair of ranks has on its way, in each direction: small messages, "
    "and those whose memory is not registered. Less than 256K counts as that, more than 64M as "
    "64M."};

}  // namespace

IbSettings IbSettings::fromEnvironment() {
  IbSettings settings;
  settings.enabled = kEnabled.get();
  settings.hca = kHca.get();
  settings.gidIndex = static_cast<int>(kGidIndex.get());
  settings.trafficClass = static_cast<uint8_t>(kTrafficClass.get());
  settings.serviceLevel = static_cast<uint8_t>(kServiceLevel.get());
  settings.timeout = static_cast<uint8_t>(kTimeout.get());
  settings.retryCount = static_cast<uint8_t>(kRetry.get());
  settings.mtuBytes = kMtu.index() == 0 ? 0 : 128u << kMtu.index();
  settings.numQps = static_cast<uint32_t>(kQps.get());
  settings.rails = static_cast<uint32_t>(kRails.get());
  settings.failsOver = kFailOver.get();
  // A frame is 64 KB and a header at most. What has been consumed and not told yet, up to a
  // quarter, leaves room for one.
  settings.ringBytes = std::clamp<size_t>(kRing.get(), 256 << 10, kMostRingBytes);
  return settings;
}

std::optional<bool> hintedFailOver(const std::map<std::string, std::string>& hints) {
  const auto hint = hints.find("ctran::ib_fail_over");
  if (hint == hints.end()) return std::nullopt;
  if (hint->second == "0" || hint->second == "1") return hint->second == "1";
  throw Error(ErrorKind::InvalidArgument,
              "the hint ctran::ib_fail_over is \"0\" or \"1\", not \"" + hint->second + "\"");
}

HcaFilter::HcaFilter(const std::string& text) {
  const auto reject = [](std::string_view what, const char* why) {
    throw Error(ErrorKind::InvalidArgument, "CTRAN_IB_HCA: '" + std::string(what) + "' " + why);
  };
  std::string_view rest = trimmed(text);
  const auto takes = [&rest](char mark) {
    if (!rest.starts_with(mark)) return false;
    rest.remove_prefix(1);
    return true;
  };
  excludes_ = takes('^');
  exact_ = takes('=');
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view word = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (word.empty()) continue;
    Item item;
    const size_t colon = word.find(':');
    item.name = word.substr(0, colon);
    if (item.name.empty() || item.name.find_first_of("^=") != std::string::npos) {
      reject(word, "is no name of a device; ^ and = come once, before all names");
    }
    if (colon != std::string_view::npos) {
      const std::string_view port = word.substr(colon + 1);
      const auto read = std::from_chars(port.data(), port.data() + port.size(), item.port);
      if (read.ec != std::errc() || read.ptr != port.data() + port.size() || item.port < 1) {
        reject(word, "has no port number after the colon");
      }
    }
    items_.push_back(item);
  }
  if (items_.empty() && !text.empty()) reject(text, "names no device");
}

bool HcaFilter::allows(const std::string& device, int port) const {
  if (items_.empty()) return true;
  const bool named = std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
    if (item.port != 0 && item.port != port) return false;
    return exact_ ? device == item.name : device.starts_with(item.name);
  });
  return named != excludes_;
}

}  // namespace ctran
