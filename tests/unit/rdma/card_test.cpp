// What a peer says, in URLs and keys, is bounded and checked.
#include "ctran/rdma/card.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "ctran/base/error.h"
#include "ctran/rdma/registration.h"

namespace ctran {
namespace {

RdmaCard cardOf(size_t rails, size_t qps) {
  RdmaCard card;
  card.token = 0xfedcba9876543210;
  for (size_t i = 0; i < rails; ++i) {
    RdmaCard::Rail rail;
    rail.device = static_cast<uint32_t>(i);
    for (size_t b = 0; b < 16; ++b) rail.gid.raw[b] = static_cast<uint8_t>(17 * b + i);
    rail.lid = 65535;
    rail.mtu = ibverbx::IBV_MTU_4096;
    rail.psn = 0xffffff;
    rail.reads = 16;
    for (size_t q = 0; q < qps; ++q) rail.qpNums.push_back(static_cast<uint32_t>(0xffffff - q));
    card.rails.push_back(rail);
  }
  return card;
}

TEST(RdmaCardTest, ComesBackAsItWas) {
  for (const size_t rails : {1, 2, 8}) {
    const RdmaCard card = cardOf(rails, 2 * rails);
    const RdmaCard read = RdmaCard::parse(card.url());
    EXPECT_EQ(read.url(), card.url());
    ASSERT_EQ(read.rails.size(), rails);
    EXPECT_EQ(read.rails.back().qpNums, card.rails.back().qpNums);
    EXPECT_EQ(0, std::memcmp(read.rails.back().gid.raw, card.rails.back().gid.raw, 16));
  }
}

TEST(RdmaCardTest, NumbersOutOfBoundsAreRefused) {
  const auto refuses = [](const std::function<void(RdmaCard&)>& change) {
    RdmaCard card = cardOf(2, 2);
    change(card);
    EXPECT_THROW(static_cast<void>(RdmaCard::parse(card.url())), Error) << card.url();
  };
  refuses([](RdmaCard& card) { card.rails.clear(); });
  refuses([](RdmaCard& card) { card = cardOf(9, 1); });
  refuses([](RdmaCard& card) { card = cardOf(1, 17); });
  refuses([](RdmaCard& card) { card.rails[0].qpNums.clear(); });
  refuses([](RdmaCard& card) { card.rails[1].qpNums[1] = 0; });
  refuses([](RdmaCard& card) { card.rails[1].qpNums[1] = 0x1000000; });
  refuses([](RdmaCard& card) { card.rails[0].device = 8; });
  refuses([](RdmaCard& card) { card.rails[0].lid = 65536; });
  refuses([](RdmaCard& card) { card.rails[0].mtu = 0; });
  refuses([](RdmaCard& card) { card.rails[0].mtu = 6; });
  refuses([](RdmaCard& card) { card.rails[0].psn = 0x1000000; });
  refuses([](RdmaCard& card) { card.rails[0].reads = 0; });
  refuses([](RdmaCard& card) { card.rails[0].reads = 256; });
}

/// Cut, lengthened and changed in places that a seed chooses; each is read or refused, no more.
template <typename Read>
void mangle(const std::string& good, const Read& read) {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % (text.size() + 1);
      switch (random() % 4) {
        case 0:
          text.resize(at);
          break;
        case 1:
          text.insert(at, 1, ",:/-0fF \xff\0"[random() % 10]);
          break;
        case 2:
          text.insert(at, text.substr(0, random() % (text.size() + 1)));
          break;
        default:
          if (at < text.size()) text[at] = static_cast<char>(random());
      }
    }
    try {
      read(text);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::InvalidArgument);
    }
  }
}

TEST(RdmaCardTest, AMangledUrlIsReadOrRefused) {
  mangle(cardOf(3, 3).url(), [](const std::string& text) {
    const RdmaCard card = RdmaCard::parse(text);
    ASSERT_LE(card.rails.size(), RdmaCard::kMostRails);
    for (const RdmaCard::Rail& rail : card.rails) ASSERT_LE(rail.qpNums.size(), RdmaCard::kMostQps);
  });
  EXPECT_THROW(static_cast<void>(RdmaCard::parse(std::string(100'000, '1'))), Error);
}

TEST(RdmaKeyTest, ComesBackAsItWas) {
  const RdmaKey key{1, 0x7f0000001000, 8192, {1, 0xffffffff, 3}};
  const RdmaKey read = RdmaKey::parse(key.text());
  EXPECT_EQ(read.text(), key.text());
  EXPECT_EQ(read.rkeys, key.rkeys);
}

TEST(RdmaKeyTest, AMangledKeyIsReadOrRefused) {
  mangle(RdmaKey{~0ull, 0x7f0000001000, 8192, {1, 2}}.text(), [](const std::string& text) {
    const RdmaKey key = RdmaKey::parse(text);
    ASSERT_LE(key.rkeys.size(), RdmaDevices::kMost);
    ASSERT_LE(key.bytes, UINT64_MAX - key.address);
  });
  for (const char* text :
       {"", "rdma-key-1:", "rdma-key-1:1:2:3", "rdma-key-1:1:ffffffffffffffff:2:1",
        "rdma-key-1:1:2:3:100000000", "rdma-key-1:1:2:3:1:2:3:4:5:6:7:8:9"}) {
    EXPECT_THROW(static_cast<void>(RdmaKey::parse(text)), Error) << text;
  }
}

}  // namespace
}  // namespace ctran
