#include "ctran/rdma/card.h"

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/rdma/text.h"

namespace ctran {

using namespace ibverbx;

namespace {

constexpr std::string_view kUrlPrefix = "rdma://1/";
constexpr size_t kLongestUrl = 8192;

uint64_t half(const ibv_gid& gid, int which) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | gid.raw[8 * which + i];
  return value;
}

void setHalf(ibv_gid& gid, int which, uint64_t value) {
  for (int i = 7; i >= 0; --i, value >>= 8) {
    gid.raw[8 * which + i] = static_cast<uint8_t>(value);
  }
}

/// "/device,gid,gid,lid,mtu,psn,reads,qp,qp,...", all hexadecimal
bool readRail(HexReader& reader, RdmaCard::Rail& rail) {
  const auto number = [&](uint64_t least, uint64_t most, const char* before, uint64_t& value) {
    const auto read = reader.takes(before) ? reader.number(most) : std::nullopt;
    value = read.value_or(0);
    return read && value >= least;
  };
  uint64_t device, high, low, lid, mtu, psn, reads;
  if (!number(0, RdmaCard::kMostRails - 1, "/", device) || !number(0, UINT64_MAX, ",", high) ||
      !number(0, UINT64_MAX, ",", low) || !number(0, UINT16_MAX, ",", lid) ||
      !number(IBV_MTU_256, IBV_MTU_4096, ",", mtu) || !number(0, 0xffffff, ",", psn) ||
      !number(1, UINT8_MAX, ",", reads)) {
    return false;
  }
  rail.device = static_cast<uint32_t>(device);
  setHalf(rail.gid, 0, high);
  setHalf(rail.gid, 1, low);
  rail.lid = static_cast<uint32_t>(lid);
  rail.mtu = static_cast<uint32_t>(mtu);
  rail.psn = static_cast<uint32_t>(psn);
  rail.reads = static_cast<uint32_t>(reads);
  while (reader.takes(",")) {
    const std::optional<uint64_t> qp = reader.number(0xffffff);
    if (!qp || *qp == 0 || rail.qpNums.size() == RdmaCard::kMostQps) return false;
    rail.qpNums.push_back(static_cast<uint32_t>(*qp));
  }
  return !rail.qpNums.empty();
}

}  // namespace

std::string RdmaCard::url() const {
  std::string text(kUrlPrefix);
  text += hex(token);
  for (const Rail& rail : rails) {
    text += "/" + hex(rail.device) + "," + hex(half(rail.gid, 0)) + "," + hex(half(rail.gid, 1)) +
            "," + hex(rail.lid) + "," + hex(rail.mtu) + "," + hex(rail.psn) + "," + hex(rail.reads);
    for (const uint32_t qp : rail.qpNums) text += "," + hex(qp);
  }
  return text;
}

RdmaCard RdmaCard::parse(std::string_view url) {
  RdmaCard card;
  HexReader reader(url);
  bool good = url.size() <= kLongestUrl && reader.takes(kUrlPrefix);
  const std::optional<uint64_t> token = good ? reader.number(UINT64_MAX) : std::nullopt;
  good = token.has_value();
  card.token = token.value_or(0);
  while (good && !reader.isAtEnd()) {
    card.rails.emplace_back();
    good = card.rails.size() <= kMostRails && readRail(reader, card.rails.back());
  }
  if (!good || card.rails.empty()) {
    throw Error(ErrorKind::InvalidArgument,
                "this is no URL of an RDMA transport of this version: \"" +
                    printable(url.substr(0, 40)) + "\"",
                {}, {}, "pass on what bind() of the peer returns, as it is");
  }
  return card;
}

}  // namespace ctran
