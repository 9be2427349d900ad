#include "ctran/bootstrap/places.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

NetAddress address(uint8_t last) {
  NetAddress address;
  address.family = 4;
  address.ip = {10, 0, 0, last};
  return address;
}

Places one(int rank, int host) {
  Place place;
  place.rank = rank;
  place.pid = static_cast<uint32_t>(1000 + rank);
  place.port = static_cast<uint16_t>(5000 + rank);
  Site site = Site::at("boot/" + std::to_string(host), {address(static_cast<uint8_t>(host))});
  std::strcpy(site.name.data(), "node");
  return {place, site};
}

/// Ranks 0 to 5, those of two hosts in turn.
Places six() {
  std::vector<Places> parts;
  for (const int r : {4, 1, 5, 0, 3, 2}) parts.push_back(one(r, r % 2));
  return Places::merged(parts);
}

std::vector<std::byte> sentBytes(const Places& places) {
  return {places.bytes().begin(), places.bytes().end()};
}

TEST(Places, TellWhereEachRankIs) {
  const Places places = six();
  ASSERT_EQ(places.size(), 6);
  for (int r = 0; r < 6; ++r) {
    EXPECT_EQ(places[r].rank, r);
    EXPECT_EQ(places.describe(r), "node (pid " + std::to_string(1000 + r) + ")");
    const auto addresses = places.addressesOf(r);
    EXPECT_EQ(addresses[0].text(),
              "10.0.0." + std::to_string(r % 2) + ":" + std::to_string(5000 + r));
    EXPECT_EQ(addresses.size(), 1u);
  }
  EXPECT_EQ(places.hosts(), (std::vector{0, 1, 0, 1, 0, 1}));
  EXPECT_TRUE(places.areOnOneMachine(0, 1));
}

TEST(Places, OfAHostAreKeptOnceForItsRanks) {
  const size_t perRank = sizeof(Place), perHost = sizeof(Site);
  EXPECT_EQ(six().bytes().size(), 8 + 6 * perRank + 2 * perHost);
}

TEST(Places, TravelAsTheyAre) {
  const Places sent = six();
  const Places came = Places::received(sentBytes(sent), 6, 3);
  EXPECT_EQ(sentBytes(came), sentBytes(sent));
}

TEST(Places, InSharedMemoryAreOfAllRanks) {
  const Places sent = six();
  const auto sharedOf = [&](std::span<const std::byte> bytes, int size) {
    return errorOf([&] { Places::shared(nullptr, bytes, size); });
  };
  EXPECT_EQ(Places::shared(nullptr, sent.bytes(), 6).describe(5), "node (pid 1005)");
  EXPECT_EQ(sharedOf(sent.bytes(), 7).kind(), ErrorKind::System);
  EXPECT_EQ(sharedOf(sent.bytes().first(sent.bytes().size() - 1), 6).kind(), ErrorKind::System);
  EXPECT_EQ(sharedOf({}, 6).kind(), ErrorKind::System);
}

TEST(Places, OfSomeRanksAreThoseOfASplit) {
  const Places places = six().selected(std::vector{5, 0, 2}, std::vector<uint16_t>{7, 8, 9});
  ASSERT_EQ(places.size(), 3);
  EXPECT_EQ(places.describe(0), "node (pid 1005)");
  EXPECT_EQ(places.addressesOf(0)[0].text(), "10.0.0.1:7");
  EXPECT_EQ(places.addressesOf(2)[0].text(), "10.0.0.0:9");
  EXPECT_EQ(places.hosts()[1], places.hosts()[2]);
  EXPECT_NE(places.hosts()[0], places.hosts()[1]);
}

TEST(Places, ThatMakeNoSenseAreNotTaken) {
  const auto refused = [](std::vector<std::byte> bytes, int size = 6) {
    const Error error = errorOf([&] { Places::received(std::move(bytes), size, 3); });
    EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{3});
  };
  const auto good = sentBytes(six());
  const auto with = [&](size_t offset, uint32_t word) {
    auto bytes = good;
    std::memcpy(bytes.data() + offset, &word, sizeof word);
    return bytes;
  };
  refused({});
  refused({good.begin(), good.end() - 1});
  refused(good, 5);                             // a rank that there is not
  refused(with(0, 0xffffffff));                 // more ranks than bytes
  refused(with(4, 0xffffffff));                 // and hosts
  refused(with(0, 0));                          // other numbers of both
  refused(with(8, 1));                          // a rank twice
  refused(with(8 + sizeof(Place), 0));          // and not in order
  refused(with(8, 0xffffffff));                 // rank -1
  refused(with(8 + offsetof(Place, site), 2));  // a host that there is not
}

}  // namespace
}  // namespace ctran::testing
