// Programs of MSCCL++ as plans: the instructions, and what they become.
#include <gtest/gtest.h>

#include <set>

#include "ctran/plan/mscclpp/orders.h"
#include "ctran/plan/mscclpp/prove.h"
#include "ctran/plan/trim.h"
#include "ctran/plan/verify.h"
#include "tests/unit/plan/adversary.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan::mscclpp {
namespace {

using testing::errorOf;

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>>& by) {
  for (const auto& [from, to] : by) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

/// Two ranks; `ME` and `PEER` in the text of a rank are their numbers.
std::string program(const std::string& collective, bool inPlace, const std::string& chunks,
                    const std::string& rank, const std::string& more = "") {
  const std::string gpu = R"({"id": ME, )" + chunks + R"(, "threadblocks": [)" + rank + R"(],
    "channels": [{"channel_type": "memory", "connected_to": [PEER]}],
    "remote_buffers": [{"rank": PEER, "type": "s", "access_channel_types": ["memory"]},
                       {"rank": PEER, "type": "o", "access_channel_types": ["memory"]}],
    "semaphores": [{"init_value": 0}]})";
  return R"({"name": "test", "collective": ")" + collective + R"(", "protocol": "Simple",
    "inplace": )" +
         (inPlace ? "true" : "false") + R"(, "reuse_resources": false, "gpus": [)" +
         replaced(gpu, {{"ME", "0"}, {"PEER", "1"}}) + ", " +
         replaced(gpu, {{"ME", "1"}, {"PEER", "0"}}) + R"(], "num_threads_per_block": 1024)" +
         more + "}";
}

/// A thread block with a channel to the peer, and references to its scratch (0) and output (1).
std::string block(int id, const std::string& ops) {
  return R"({"id": )" + std::to_string(id) + R"(, "ops": [)" + ops +
         R"(], "channels": [{"channel_type": "memory", "channel_ids": [0]}],
             "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1]}]})";
}

Plan lowered(const std::string& text) { return lower(parse(Json::parse(text))).plan; }

void expectRight(const Plan& plan) {
  const Report report = verify(plan);
  EXPECT_TRUE(report.ok()) << report.toText() << toText(plan);
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(runUnkindly(plan, 4, seed), "");
}

/// The packets example of upstream's tests: each rank reduces one half and sends it back.
const std::string kReducePack = program(
    "allreduce", true, R"("input_chunks": 2, "output_chunks": 2, "scratch_chunks": 3)",
    block(0, R"({"name": "ppkt", "src_buff": [{"type": "i", "index": PEER, "size": 1}],
                         "dst_buff": [{"buffer_id": 0, "index": PEER, "size": 1}],
                         "channel_type": "memory"})") +
        "," + block(1, R"({"name": "respkt",
                 "src_buff": [{"type": "i", "index": ME, "size": 1},
                              {"type": "s", "index": ME, "size": 1}],
                 "dst_buff": [{"type": "i", "index": ME, "size": 1},
                              {"buffer_id": 0, "index": ME, "size": 1}],
                 "channel_type": "memory", "reduce_op": "sum"})") +
        "," + block(2, R"({"name": "upkt", "src_buff": [{"type": "s", "index": PEER, "size": 1}],
                             "dst_buff": [{"type": "i", "index": PEER, "size": 1}]})"));

TEST(Mscclpp, PacketsBecomeChannels) {
  const Plan plan = lowered(kReducePack);
  expectRight(plan);
  EXPECT_TRUE(plan.inPlace);
  EXPECT_EQ(plan.programs[0].size(), 3u);
  EXPECT_TRUE(plan.programs[0][0][0].packet);
  EXPECT_EQ(nameOf(plan.programs[0][1][0], 0), "reduce_put");
}

TEST(Mscclpp, NothingOfAProgramIsLost) {
  const Json json = Json::parse(kReducePack);
  EXPECT_EQ(parse(json).json, json);
  EXPECT_EQ(Json::parse(parse(json).json.print(80)), json);
  EXPECT_EQ(parse(json).gpus[1].threadblocks[1].ops[0].src[1].index, 1);
}

const std::string kCopy = R"({"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                              "dst_buff": [{"type": "o", "index": ME, "size": 1}]})";
const std::string kPut = R"({"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                             "dst_buff": [{"buffer_id": 1, "index": ME, "size": 1}],
                             "channel_ids": [0], "channel_type": "memory"})";
const std::string kSignal = R"({"name": "signal", "channel_ids": [0], "channel_type": "memory"})";
const std::string kWait = R"({"name": "wait", "channel_ids": [0], "channel_type": "memory"})";
const std::string kHello = kSignal + ", " + kWait;  // both have begun
const std::string kGather = R"("input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0)";

std::string gather(const std::vector<std::string>& ops) {
  std::string list;
  for (const std::string& op : ops) list += (list.empty() ? "" : ", ") + op;
  return program("allgather", false, kGather, block(0, list));
}

TEST(Mscclpp, SignalsAndWaitsOfAConnectionMeet) {
  expectRight(lowered(gather({kCopy, kHello, kPut, R"({"name": "nop"})", kSignal, kWait})));
}

TEST(Mscclpp, IterationsOfAPipelineTakePiecesOfTheirChunks) {
  const std::string pipeline = R"({"name": "pipeline", "iter_context": {"unit_size": 1024,
      "num_chunks": 1}, "ops": [)" +
                               kPut + ", " + kSignal + ", " + kWait + "]}";
  const Plan plan = lowered(gather({kCopy, kHello, pipeline}));
  expectRight(plan);
  EXPECT_EQ(plan.chunks, 2);
  ASSERT_EQ(plan.programs[0][0].size(), 9u);  // twice three of them
  EXPECT_EQ(plan.programs[0][0][3].from[0].index, 0);
  EXPECT_EQ(plan.programs[0][0][6].from[0].index, 1);
  const std::string twice = replaced(pipeline, {{R"("num_chunks": 1)", R"("num_chunks": 2)"}});
  const std::string message = errorOf([&] { lowered(gather({kCopy, twice})); }).what();
  EXPECT_NE(message.find("an operation on chunks of size 1 in a loop of num_chunks=2"),
            std::string::npos)
      << message;
}

TEST(Mscclpp, SwitchChannelsAreReducedFromAllAndStoredToAll) {
  const std::string part = R"([{"switch_channel_id": 0, "index": ME, "size": 1}])";
  const std::string reduce = R"({"name": "glres", "src_buff": )" + part + R"(, "dst_buff": )" +
                             part + R"(, "channel_type": "switch", "reduce_op": "sum"})";
  std::string text =
      program("allreduce", true, R"("input_chunks": 2, "output_chunks": 2, "scratch_chunks": 0)",
              block(0, kHello + ", " + reduce + ", " + kHello));
  text =
      replaced(text, {{R"("channel_ids": [0]}],)",
                       R"("channel_ids": [0]}, {"channel_type": "switch", "channel_ids": [0]}],)"},
                      {R"("connected_to": [0]}])", R"("connected_to": [0]}, SWITCH])"},
                      {R"("connected_to": [1]}])", R"("connected_to": [1]}, SWITCH])"},
                      {"SWITCH", R"({"channel_type": "switch", "buffer_type": "i",
                                        "rank_groups": [{"size": 2, "ranks": [0, 1]}]})"}});
  const Plan plan = lowered(text);
  expectRight(plan);
  const std::vector<Place> everywhere{{0, Buffer::Output, 1}, {1, Buffer::Output, 1}};
  EXPECT_EQ(plan.programs[1][0][2].from, everywhere);
  EXPECT_EQ(plan.programs[1][0][2].to, everywhere);
  EXPECT_TRUE(verify(plan).properties.rankOrder);
  EXPECT_TRUE(verify(plan).properties.flat);
  errorOf([&] {
    lowered(replaced(text, {{R"("switch_channel_id": 0)", R"("switch_channel_id": 1)"}}));
  });
}

TEST(Mscclpp, WhatIsWrongIsFound) {
  // Accepted upstream: the counts of signals and waits match.
  const Report report = verify(lowered(gather({kCopy, kHello, kSignal, kPut, kWait})));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.findings[0].kind, Finding::Kind::Race);
}

TEST(Mscclpp, GroupsShareTheirChunks) {
  const auto shared = [](const std::string& op, int index) {
    return replaced(op, {{R"({"name")", R"({"tbg_info": {"tb_id": )" + std::to_string(index) +
                                            R"(, "tbg_size": 2}, "name")"}});
  };
  const std::string barrier = R"({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2})";
  const auto all = [&](const std::string& put) {
    return program(
        "allgather", false, kGather,
        block(0, shared(kCopy, 0) + "," + kHello + "," + barrier + "," + shared(put, 0) + "," +
                     barrier + "," + kHello) +
            "," +
            block(1, shared(kCopy, 1) + "," + barrier + "," + shared(put, 1) + "," + barrier));
  };
  const Plan plan = lowered(all(kPut));
  EXPECT_EQ(plan.chunks, 2);
  EXPECT_EQ(plan.programs[1][1][0].from[0].index, 1);
  // A put of the second block is announced by a signal of the first, behind a barrier: that does
  // for what threads store, and not for what goes over a network.
  expectRight(plan);
  EXPECT_EQ(withoutIdleStores(plan), plan);
  EXPECT_TRUE(needsOf(plan).sharedMemory);
  const auto ports = [](const std::string& text) {
    return replaced(text, {{R"("memory")", R"("port")"}});
  };
  EXPECT_EQ(verify(lowered(ports(all(kPut)))).findings[0].kind, Finding::Kind::Race);
  // Where one block does all, nobody need store.
  const Plan alone = lowered(gather({kCopy, kHello, kPut, kHello}));
  EXPECT_FALSE(needsOf(withoutIdleStores(alone)).sharedMemory);
  EXPECT_EQ(toText(withoutIdleStores(alone)),
            toText(lowered(ports(gather({kCopy, kHello, kPut, kHello})))));
}

TEST(Mscclpp, SemaphoresOrderThreadBlocks) {
  const std::string release = R"({"name": "sem_release", "semaphore_ids": [0]})";
  const std::string acquire = R"({"name": "sem_acquire", "semaphore_ids": [0]})";
  const std::string toScratch =
      R"({"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
          "dst_buff": [{"type": "s", "index": 0, "size": 1}]})";
  const std::string fromScratch = replaced(kPut, {{R"("type": "i")", R"("type": "s")"}});
  const auto with = [&](const std::string& first, const std::string& second) {
    return lowered(program("allgather", false,
                           R"("input_chunks": 1, "output_chunks": 2, "scratch_chunks": 1)",
                           block(0, kCopy + "," + toScratch + first) + "," +
                               block(1, kHello + "," + second + fromScratch + "," + kHello)));
  };
  expectRight(with("," + release, acquire + ","));
  EXPECT_EQ(verify(with("", "")).findings[0].kind, Finding::Kind::Race);
}

TEST(Mscclpp, SemaphoresOfSeveralBlocksSayWhatIsCertain) {
  const std::string release = R"({"name": "sem_release", "semaphore_ids": [0]})";
  const std::string acquire = R"({"name": "sem_acquire", "semaphore_ids": [0]})";
  const std::string toScratch =
      R"({"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
          "dst_buff": [{"type": "s", "index": 0, "size": 1}]})";
  const std::string fromScratch = replaced(kPut, {{R"("type": "i")", R"("type": "s")"}});
  const auto with = [&](const std::string& first, const std::string& second) {
    return lower(parse(Json::parse(
        program("allgather", false, R"("input_chunks": 1, "output_chunks": 2, "scratch_chunks": 1)",
                block(0, kCopy + "," + toScratch + "," + release) + "," + block(1, first) + "," +
                    block(2, kHello + "," + second + "," + kHello)))));
  };
  // After two acquisitions both blocks have released; after one, one of them.
  const Lowered both = with(release, acquire + "," + acquire + "," + fromScratch);
  expectRight(both.plan);
  EXPECT_FALSE(both.unordered.has_value());
  const Lowered one = with(release, acquire + "," + fromScratch + "," + acquire);
  EXPECT_FALSE(one.unordered.has_value());
  EXPECT_EQ(verify(one.plan).findings[0].kind, Finding::Kind::Race);
  // Two blocks acquire, and nothing says which of them takes the first release.
  const Lowered two = with(release + "," + acquire, acquire + "," + fromScratch);
  ASSERT_TRUE(two.unordered.has_value());
  EXPECT_EQ(two.unordered->second.op, 1);
  const std::string uneven = errorOf([&] { with(release, acquire + "," + fromScratch); }).what();
  EXPECT_NE(
      uneven.find("semaphore 0 of rank 0 is signalled 2 times in an execution, and waited on 1"),
      std::string::npos)
      << uneven;
  // The second block takes the only release there is before the first one, which then has none.
  const Lowered stuck = with(acquire + "," + release, acquire + "," + fromScratch);
  EXPECT_TRUE(stuck.mayStick);
}

/// Two blocks of a rank that copy the input to one place, one after the other.
std::string lock(const std::string& before, const std::string& after) {
  const std::string copy = before + "," + kCopy + "," + after;
  return replaced(
      program("allgather", false, R"("input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0)",
              block(0, copy) + "," + block(1, copy) + "," +
                  block(2, kHello + "," + kPut + "," + kHello)),
      {{R"("init_value": 0)", R"("init_value": 1)"}});
}

TEST(Mscclpp, BlocksThatTakeASemaphoreInAnyOrderAreProvedInEach) {
  const std::string release = R"({"name": "sem_release", "semaphore_ids": [0]})";
  const std::string acquire = R"({"name": "sem_acquire", "semaphore_ids": [0]})";
  const Program locked = parse(Json::parse(lock(acquire, release)));
  const Lowered certain = lower(locked);
  EXPECT_TRUE(certain.unordered.has_value());
  EXPECT_FALSE(verify(certain.plan).ok());
  Choices choices;
  std::set<std::string> plans;
  do {
    const Lowered one = lower(locked, kIterations, &choices);
    expectRight(one.plan);
    plans.insert(toText(one.plan));
  } while (choices.advance());
  EXPECT_EQ(plans.size(), 4U);  // two orders on each of two ranks
  const Proof proof = prove(locked);
  EXPECT_TRUE(proof.report.ok()) << proof.report.toText();
  expectRight(proof.lowered.plan);

  const Proof open = prove(parse(Json::parse(lock(release, acquire))));
  EXPECT_EQ(open.report.findings.at(0).kind, Finding::Kind::Race) << open.report.toText();
}

TEST(Mscclpp, AnOrderThatNeverEndsIsWrong) {
  const std::string first = R"({"name": "sem_acquire", "semaphore_ids": [0]})";
  const std::string second = R"({"name": "sem_acquire", "semaphore_ids": [1]})";
  const std::string both = first + "," + second, turned = second + "," + first;
  const std::string release = R"({"name": "sem_release", "semaphore_ids": [0, 1]})";
  const auto with = [&](const std::string& others) {
    return parse(Json::parse(replaced(
        program("allgather", false, R"("input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0)",
                block(0, both + "," + kCopy + "," + release) + "," +
                    block(1, others + "," + release) + "," +
                    block(2, kHello + "," + kPut + "," + kHello)),
        {{R"([{"init_value": 0}])", R"([{"init_value": 1}, {"init_value": 1}])"}})));
  };
  EXPECT_TRUE(prove(with(both)).report.ok());
  const std::string stuck = errorOf([&] { prove(with(turned)); }).what();
  EXPECT_NE(stuck.find("it waits for ever, if others that wait for the same come first"),
            std::string::npos)
      << stuck;
  expectRight(lowerUnproved(with(turned)).plan);
}

TEST(Mscclpp, SaysWhatAPlanCannotSay) {
  struct Case {
    std::string text;
    const char* says;
  };
  const Case cases[] = {
      {replaced(kReducePack, {{"allreduce", "scan"}}), "a plan cannot express the collective scan"},
      {gather({R"({"name": "glre", "channel_type": "switch"})"}), "it lacks sources or dest"},
      {gather({R"({"name": "dance"})"}), "rank 0, thread block 0, 'dance': there is no such"},
      {gather({kPut, kSignal}), "nobody is at the other end"},
      {gather({replaced(kPut, {{R"("size": 1)", R"("size": 16777216)"}})}),
       "a plan has no 16777216 chunks"},
      {gather({replaced(kPut, {{R"("buffer_id": 1)", R"("buffer_id": 7)"}})}),
       "there is no memory channel or buffer 7"},
      {replaced(kReducePack, {{R"("name": "upkt", "src_buff": [{"type": "s", "index": 0)",
                               R"("name": "upkt", "src_buff": [{"type": "s", "index": 2)"}}),
       "nobody writes packets to scratch[2] of rank 1"},
      {replaced(kReducePack, {{R"("name": "upkt", "src_buff": [{"type": "s")",
                               R"("name": "upkt", "src_buff": [{"type": "o")"}}),
       "rank 0, thread block 2, 'upkt': it has packets in the output of rank 0, but they lie in"},
      {replaced(kReducePack,
                {{R"("dst_buff": [{"buffer_id": 0)", R"("dst_buff": [{"buffer_id": 1)"}}),
       "'ppkt': it has packets in the output of rank 1, but they lie in scratch only"},
      {replaced(kReducePack, {{"\"memory\"", "\"port\""}}),
       "'ppkt': it has packets in the output of rank 0, but they lie in scratch only"},
      {gather({R"({"name": "barrier", "barrier_id": 0, "num_threadblocks": 3})"}),
       "1 thread blocks use it, not 3"},
  };
  for (const Case& c : cases) {
    const std::string message = errorOf([&] { lowered(c.text); }).what();
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
  }
  for (const char* bad : {"{}", "[]", R"({"name": "x", "collective": "allreduce", "gpus": []})",
                          R"({"name": "x", "collective": "allreduce", "gpus": [{"id": 1}]})",
                          R"({"name": "x", "collective": "allreduce", "gpus": [{"id": 0}]})"}) {
    errorOf([&] { lowered(bad); });
  }
}

}  // namespace
}  // namespace ctran::plan::mscclpp
