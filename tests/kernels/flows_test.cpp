// The protocols of the kernels on flows, and of the packet exchange, with threads of the host as
// blocks: every byte of every output is looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "ctran/collective/exchange/flows.cuh"
#include "ctran/collective/exchange/packets.cuh"
#include "ctran/collective/reduce/pipeline.cuh"
#include "tests/kernels/device_world.h"

namespace ctran::device {
namespace {

constexpr u64 kSlotBytes = 16 * 64;

std::vector<u32> allOf(u32 ranks) {
  std::vector<u32> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

char byteOf(u32 from, u32 to, u32 k, u64 i) {
  return static_cast<char>(from * 61 + to * 17 + k * 7 + i * 3 + i / 256 + 1);
}

/// How many bytes one rank sends another in operation k; the same both ways.
u64 bytesOf(u32 a, u32 b, u32 k) {
  const u64 sizes[] = {
      0, 1, 15, 700, 2 * DeviceWorld::kStepBytes + 5, 13 * DeviceWorld::kStepBytes + 33};
  return sizes[(a + b + k) % 6];
}

/// As if every rank had mapped all memory, at its own address: the segment begins at 0.
Place placeOf(const void* address) { return {1, reinterpret_cast<u64>(address)}; }

/// Which ranks offer their memory.
enum class Offers { None, All, Odd };

bool offersIn(Offers offers, u32 rank) {
  return offers == Offers::All || (offers == Offers::Odd && rank % 2 == 1);
}

/// All-to-all of changing sizes, out of place (from odd addresses) and in place.
void expectExchange(u32 ranks, u32 operations, u32 firstStep, Offers offers = Offers::None) {
  constexpr u32 kFlows = 2;
  const u32 blocks = 2 * kFlows * ranks;
  DeviceWorld world(ranks, kSlotBytes, 0, {blocks, 1}, firstStep);
  constexpr u64 kRoom = 14 * DeviceWorld::kStepBytes;
  std::vector<std::vector<char>> in(ranks), out(ranks);
  for (u32 r = 0; r < ranks; ++r) {
    in[r].assign(ranks * kRoom + 16, 0);
    out[r].assign(ranks * kRoom + 16, 0);
  }
  for (u32 k = 0; k < operations; ++k) {
    const bool inPlace = k % 3 == 1;
    const bool mixed = k % 3 == 2;  // rank 0 in place, the others not
    const u64 shift = k % 2 == 0 ? 0 : 1 + k % 7;
    const u32 stepBytes = DeviceWorld::kStepBytes / (k % 4 == 3 ? 2 : 1);
    const auto at = [&](std::vector<char>& buffer, u32 peer) {
      return buffer.data() + peer * kRoom + shift;
    };
    for (u32 r = 0; r < ranks; ++r) {
      for (u32 p = 0; p < ranks; ++p) {
        for (u64 i = 0; i < bytesOf(r, p, k); ++i) at(in[r], p)[i] = byteOf(r, p, k, i);
      }
      std::fill(out[r].begin(), out[r].end(), '#');
    }
    world.run(
        allOf(ranks), 1,
        [&](u32) {
          return DeviceWorld::Grid{blocks, 1};
        },
        [&](u32 rank, u32, const Block& block) {
          ExchangeArguments a{};
          a.team = world.team(rank);
          for (u32 step = 0; step < ranks; ++step) {
            const u32 p = (rank + step) % ranks;
            const u64 bytes = bytesOf(rank, p, k);
            const u32 labelled = k % 2;
            if (bytes == 0 && (p == rank || !labelled)) continue;
            char* from = at(in[rank], p);
            char* to = at(out[rank], p);
            const bool swaps = inPlace || (mixed && rank == 0);
            Word16 offer = {};
            if (offersIn(offers, rank) && !swaps) offer = makeOffer(placeOf(to));
            if (p == rank) {
              a.transfers[a.count++] = {from, to, bytes, kCopy,  p, kFlows, stepBytes,
                                        0,    0,  0,     kFlows, 0, {}};
            } else if (swaps) {
              a.transfers[a.count++] = {from,     from, bytes, kSwap,  p, kFlows, stepBytes,
                                        labelled, 0,    0,     kFlows, 0, {}};
            } else {
              a.transfers[a.count++] = {from,     nullptr, bytes, kSend,  p, kFlows, stepBytes,
                                        labelled, 0,       0,     kFlows, 0, {}};
              a.transfers[a.count++] = {nullptr,  to, bytes, kReceive, p, kFlows, stepBytes,
                                        labelled, 0,  0,     kFlows,   0, offer};
            }
          }
          exchange(a, block);
        });
    for (u32 r = 0; r < ranks; ++r) {
      for (u32 p = 0; p < ranks; ++p) {
        const bool swapped = (inPlace || (mixed && r == 0)) && p != r;
        const char* got = swapped ? at(in[r], p) : at(out[r], p);
        const u64 bytes = bytesOf(r, p, k);
        for (u64 i = 0; i < bytes; ++i) {
          ASSERT_EQ(got[i], byteOf(p, r, k, i))
              << "operation " << k << ", rank " << r << " from " << p << ", byte " << i;
        }
        if (!swapped) {
          ASSERT_EQ(got[bytes], '#') << "a byte too many";
        }
      }
    }
  }
}

TEST(FlowExchange, TwoRanks) { expectExchange(2, 12, 0); }
TEST(FlowExchange, ThreeRanksAndStepsThatWrapAround) { expectExchange(3, 8, 0xfffffffdu); }

TEST(FlowExchange, StraightToMemoryThatIsOffered) {
  expectExchange(2, 12, 0, Offers::All);
  expectExchange(3, 9, 0xfffffff9u, Offers::Odd);
}

/// The root sends every other rank a part, which that sends on to the rest.
void expectRelays(u32 ranks, u32 root, u32 firstStep) {
  constexpr u32 kFlows = 2;
  const u32 blocks = kFlows * (ranks - 1);
  DeviceWorld world(ranks, kSlotBytes, 0, {blocks, 1}, firstStep);
  constexpr u64 kShare = 13 * DeviceWorld::kStepBytes + 48;
  const u64 bytes = (ranks - 1) * kShare - 5;
  std::vector<std::vector<char>> data(ranks, std::vector<char>(bytes + 1, '#'));
  for (u64 i = 0; i < bytes; ++i) data[root][i] = byteOf(root, 0, 0, i);
  world.run(
      allOf(ranks), 1,
      [&](u32) {
        return DeviceWorld::Grid{blocks, 1};
      },
      [&](u32 rank, u32, const Block& block) {
        ExchangeArguments a{};
        a.team = world.team(rank);
        for (u32 r = 0; r < ranks; ++r) {
          if (r == root) continue;
          const u64 begin = (r < root ? r : r - 1) * kShare;
          char* part = data[rank].data() + begin;
          const u32 kind = rank == root ? kSend : rank == r ? kRelay : kReceive;
          const u32 peer = rank == r ? root : r;
          a.transfers[a.count++] = {part,
                                    part,
                                    std::min(kShare, bytes - begin),
                                    kind,
                                    peer,
                                    kFlows,
                                    DeviceWorld::kStepBytes,
                                    0,
                                    0,
                                    0,
                                    kFlows,
                                    0,
                                    {}};
        }
        exchange(a, block);
      });
  for (u32 r = 0; r < ranks; ++r) {
    for (u64 i = 0; i < bytes; ++i) ASSERT_EQ(data[r][i], byteOf(root, 0, 0, i)) << r << ' ' << i;
    ASSERT_EQ(data[r][bytes], '#');
  }
}

/// Rank 0 sends rank 1 a message, which expects another.
void expectRefusal(const Transfer& sent, const Transfer& expected) {
  DeviceWorld world(2, kSlotBytes, 0, {2, 1});
  std::vector<char> in(sent.bytes), out(expected.bytes + 1, '#');
  std::thread aborter([&] {  // what a sender still waits for, its host ends
    while (loadRelaxed(&world.report(1).state) == kRunning) std::this_thread::yield();
    storeRelaxed(&world.control(0).abort, 1u);
  });
  world.run(
      allOf(2), 1,
      [&](u32) {
        return DeviceWorld::Grid{2, 1};
      },
      [&](u32 rank, u32, const Block& block) {
        ExchangeArguments a{};
        a.team = world.team(rank);
        a.count = 1;
        a.transfers[0] = rank == 0 ? sent : expected;
        a.transfers[0].from = in.data();
        a.transfers[0].to = out.data();
        a.transfers[0].offer = makeOffer(placeOf(out.data()));
        exchange(a, block);
      });
  aborter.join();
  ASSERT_EQ(world.report(1).state, kRefused);
  const Refusal& found = world.report(1).refusal;
  EXPECT_EQ(found.why, kRefusedMessage);
  EXPECT_EQ(found.from, 0u);
  EXPECT_EQ(found.to, 1u);
  EXPECT_EQ(found.amount, static_cast<i64>(sent.bytes));
  EXPECT_EQ(found.limit, static_cast<i64>(expected.bytes));
  EXPECT_EQ(found.tags[0], sent.sendTag);
  EXPECT_EQ(found.tags[1], expected.receiveTag);
  EXPECT_EQ(out[expected.bytes], '#') << "more than there is room for";
}

TEST(FlowExchange, WhatIsNotExpectedIsRefused) {
  constexpr u32 kStep = DeviceWorld::kStepBytes;
  const auto message = [](u32 kind, u64 bytes, u32 flows, u32 tag) {
    return Transfer{nullptr, nullptr, bytes, kind,  1 - kind, flows, kStep,
                    1,       tag,     tag,   flows, 0,        {}};
  };
  static_assert(kSend == 0 && kReceive == 1);
  expectRefusal(message(kSend, 20 * kStep, 2, 0), message(kReceive, 11 * kStep, 1, 0));
  expectRefusal(message(kSend, 20, 1, 0), message(kReceive, 11 * kStep, 2, 0));
  expectRefusal(message(kSend, 0, 1, 0), message(kReceive, 1, 1, 0));
  expectRefusal(message(kSend, 5, 1, 0), message(kReceive, 0, 1, 0));
  expectRefusal(message(kSend, 700, 1, 3), message(kReceive, 700, 1, 4));
}

/// Rank 0 has all its messages in one kernel: many to rank 1, of changing sizes and numbers of
/// flows, and one from it. Rank 1 has a kernel for each, the one that sends last.
void expectChain(u32 messages, u32 firstStep, bool offered = false) {
  constexpr u32 kMost = 2;
  DeviceWorld world(2, kSlotBytes, 0, {2 * kMost, 1}, firstStep);
  const auto bytes = [](u32 k) { return k % 5 == 2 ? 0 : bytesOf(0, 1, k) + k; };
  const auto flows = [](u32 k) { return 1 + k % kMost; };
  std::vector<std::vector<char>> in(messages + 1), out(messages + 1);
  for (u32 k = 0; k <= messages; ++k) {
    for (u64 i = 0; i < bytes(k); ++i) in[k].push_back(byteOf(0, 1, k, i));
    out[k].assign(bytes(k) + 1, '#');
  }
  const auto transfer = [&](u32 kind, u32 rank, u32 k) {
    Transfer t{.from = in[k].data(),
               .to = out[k].data(),
               .bytes = bytes(k),
               .kind = kind,
               .peer = 1 - rank,
               .flows = flows(k),
               .stepBytes = DeviceWorld::kStepBytes,
               .isLabelled = 1,
               .sendTag = k,
               .receiveTag = k,
               .blocks = flows(k),
               .next = 0,
               .offer = {}};
    if (kind == kReceive && offered) t.offer = makeOffer(placeOf(t.to));
    return t;
  };
  std::vector<Transfer> all{transfer(kSend, 0, 0), transfer(kReceive, 0, messages)};
  for (u32 k = 1; k < messages; ++k) {
    all[k == 1 ? 0 : all.size() - 1].next = k + 1;
    all.push_back(transfer(kSend, 0, k));
    all[0].blocks = kMost;
  }
  std::vector<Transfer> table(all.size());
  const u32 writes = static_cast<u32>(all.size() + kMaxTransfers - 1) / kMaxTransfers;
  world.run(
      allOf(2), messages + 1 + writes,
      [&](u32) {
        return DeviceWorld::Grid{2 * kMost, 1};
      },
      [&](u32 rank, u32 kernel, const Block& block) {
        if (rank == 0 && kernel < writes) {
          if (block.index != 0) return;
          WriteTransfersArguments a{};
          const u32 at = kernel * kMaxTransfers;
          a.to = table.data() + at;
          a.count = std::min<u32>(kMaxTransfers, static_cast<u32>(all.size()) - at);
          std::copy_n(all.data() + at, a.count, a.transfers);
          writeTransfers(a, block);
        } else if (rank == 0 && kernel == writes) {
          exchangeChains({world.team(0), 2, table.data()}, block);
        } else if (rank == 1 && kernel <= messages) {
          ExchangeArguments a{};
          a.team = world.team(1);
          a.count = 1;
          a.transfers[0] = transfer(kernel < messages ? kReceive : kSend, 1, kernel);
          exchange(a, block);
        }
      });
  for (u32 k = 0; k <= messages; ++k) {
    for (u64 i = 0; i < bytes(k); ++i) ASSERT_EQ(out[k][i], in[k][i]) << k << ' ' << i;
    ASSERT_EQ(out[k][bytes(k)], '#') << "a byte too many";
  }
  EXPECT_EQ(world.report(0).state, kRunning);
  EXPECT_EQ(world.report(1).state, kRunning);
}

TEST(FlowExchange, MessagesToOneRankInOneKernelKeepTheirOrder) {
  expectChain(2, 0);
  expectChain(kMaxTransfers - 1, 0xfffffffcu);
  expectChain(3 * kMaxTransfers, 0xfffffff0u, true);
}

TEST(FlowExchange, RelaysSendOnWhatComes) {
  expectRelays(3, 1, 0xfffffffbu);
  expectRelays(4, 0, 0);
}

template <u32 kRanks>
void expectPackets(u32 operations) {
  DeviceWorld world(kRanks, kSlotBytes, 0, {2, 1});
  constexpr u64 kRoom = 800;
  for (u32 k = 0; k < operations; ++k) {
    const auto bytes = [&](u32 a, u32 b) { return u64{(a + b) * 37 + k * 11} % 700; };
    std::vector<std::vector<char>> in(kRanks), out(kRanks);
    for (u32 r = 0; r < kRanks; ++r) {
      in[r].resize(kRanks * kRoom);
      out[r].assign(kRanks * kRoom, '#');
      for (u32 p = 0; p < kRanks; ++p) {
        for (u64 i = 0; i < bytes(r, p); ++i) in[r][p * kRoom + i] = byteOf(r, p, k, i);
      }
    }
    world.run(
        allOf(kRanks), 1,
        [&](u32) {
          return DeviceWorld::Grid{1 + k % 2, 1};
        },
        [&](u32 rank, u32, const Block& block) {
          PacketExchangeArguments a{};
          a.team = world.team(rank);
          for (u32 p = 0; p < kRanks; ++p) {
            a.from[p] = in[rank].data() + p * kRoom;
            a.to[p] = (k % 3 == 0 ? in[rank] : out[rank]).data() + p * kRoom;
            a.sendBytes[p] = a.receiveBytes[p] = bytes(rank, p);
            a.sendPackets[p] = a.receivePackets[p] = messagePackets(a.sendBytes[p]);
            if (p != rank) a.mostSent = a.mostReceived = std::max(a.mostSent, a.sendPackets[p]);
          }
          exchangePackets<kRanks>(a, block);
        });
    for (u32 r = 0; r < kRanks; ++r) {
      for (u32 p = 0; p < kRanks; ++p) {
        const char* got = (k % 3 == 0 ? in[r] : out[r]).data() + p * kRoom;
        for (u64 i = 0; i < bytes(r, p); ++i) {
          ASSERT_EQ(got[i], byteOf(p, r, k, i)) << k << ' ' << r << ' ' << p << ' ' << i;
        }
        if (k % 3 != 0) {
          ASSERT_EQ(got[bytes(r, p)], '#') << "a byte too many";
        }
      }
    }
  }
}

TEST(PacketExchange, TwoRanks) { expectPackets<2>(12); }
TEST(PacketExchange, FourRanks) { expectPackets<4>(12); }

/// All-reduce (`share` all), reduce (one), and reduce-scatter (none).
template <u32 kRanks>
void expectPipeline(u32 share, u32 flows, u32 lookahead, u64 count, u32 shift, u32 firstStep,
                    bool inPlace = false) {
  DeviceWorld world(kRanks, kSlotBytes, 0, {flows, 1}, firstStep);
  const u64 part = (count + kRanks - 1) / kRanks / 4 * 4 + 4;
  std::vector<std::vector<i32>> in(kRanks), out(kRanks);
  for (u32 r = 0; r < kRanks; ++r) {
    in[r].resize(count + 8);
    for (u64 i = 0; i < count; ++i) in[r][i + shift] = static_cast<i32>(r * 1000003 + i * 7 + 1);
    out[r].assign(count + 8, -77);
    if (inPlace) std::copy_n(in[r].data() + shift, count, out[r].data() + shift);
  }
  const u32 operations = inPlace ? 1 : 3;
  world.run(
      allOf(kRanks), operations,
      [&](u32) {
        return DeviceWorld::Grid{flows, 1};
      },
      [&](u32 rank, u32, const Block& block) {
        ReduceArguments a{};
        a.team = world.team(rank);
        a.shareWith = share;
        a.lookahead = lookahead;
        u64 most = 0;
        for (u32 p = 0; p < kRanks; ++p) {
          const u64 begin = std::min(count, p * part);
          a.counts[p] = std::min(count, begin + part) - begin;
          a.parts[p] = (inPlace ? out : in)[rank].data() + shift + begin;
          const bool gets = share == 0 ? p == rank : (share >> rank & 1) != 0;
          a.outputs[p] = gets ? out[rank].data() + shift + begin : nullptr;
          most = std::max<u64>(most, a.counts[p]);
        }
        a.chunkBytes = share == 0 ? DeviceWorld::kStepBytes : DeviceWorld::kStepBytes / 2;
        a.chunks = (most * 4 + a.chunkBytes - 1) / a.chunkBytes;
        a.flows = flows;
        Block launched = block;  // rows leave a flow too many where flows are odd, on some ranks
        if (rank == 0) ++launched.count;
        reducePipeline<i32, Sum, kRanks>(a, launched);
      });
  for (u32 r = 0; r < kRanks; ++r) {
    for (u64 i = 0; i < count; ++i) {
      i32 expected = 0;
      for (u32 p = 0; p < kRanks; ++p) expected += static_cast<i32>(p * 1000003 + i * 7 + 1);
      const bool gets = share == 0 ? i / part == r : (share >> r & 1) != 0;
      ASSERT_EQ(out[r][i + shift], gets ? expected : -77) << "rank " << r << ", element " << i;
    }
    ASSERT_EQ(out[r][count + shift], -77);
  }
}

TEST(ReducePipeline, AllReduce) {
  expectPipeline<2>(3, 1, 1, 10, 0, 0);
  expectPipeline<2>(3, 2, 2, 100001, 0, 7);
  expectPipeline<3>(7, 2, 2, 50000, 1, 0xfffffffeu);
  expectPipeline<4>(15, 1, 1, 70001, 0, 0);
}

TEST(ReducePipeline, Reduce) { expectPipeline<3>(2, 2, 2, 60000, 0, 0); }
TEST(ReducePipeline, ReduceScatter) { expectPipeline<3>(0, 2, 2, 60001, 3, 0); }

TEST(ReducePipeline, InPlace) {
  expectPipeline<2>(3, 2, 1, 100001, 0, 0, true);
  expectPipeline<4>(15, 3, 1, 170002, 0, 3, true);
}

TEST(ReducePipeline, OneRankIsACopy) { expectPipeline<1>(1, 2, 2, 20001, 0, 0); }

TEST(ReducePipeline, AbortEndsEveryWaitAndNamesTheMissingRank) {
  DeviceWorld world(3, kSlotBytes, 0, {2, 1});
  std::vector<i32> data(30000, 1);
  std::vector<std::vector<i32>> out(3, data);
  std::atomic<int> entered{0};
  std::thread aborter([&] {
    while (entered < 4) std::this_thread::yield();
    for (u32 rank : {0, 1}) storeRelaxed(&world.control(rank).abort, 1u);
  });
  world.run(
      {0, 1}, 2,
      [](u32) {
        return DeviceWorld::Grid{2, 1};
      },
      [&](u32 rank, u32, const Block& block) {
        ++entered;
        ReduceArguments a{};
        a.team = world.team(rank);
        a.shareWith = 7;
        a.lookahead = 1;
        for (u32 p = 0; p < 3; ++p) {
          a.parts[p] = data.data() + p * 10000;
          a.outputs[p] = out[rank].data() + p * 10000;
          a.counts[p] = 10000;
        }
        a.chunkBytes = DeviceWorld::kStepBytes / 2;
        a.chunks = 3;
        a.flows = 2;
        reducePipeline<i32, Sum, 3>(a, block);
      });
  aborter.join();
  for (u32 rank : {0, 1}) {
    EXPECT_EQ(world.report(rank).state, kAborted);
    EXPECT_NE(world.report(rank).waitedFor[2], 0u);
    EXPECT_EQ(world.state(rank).failed, kAborted);
  }
}

}  // namespace
}  // namespace ctran::device
