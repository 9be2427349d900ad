#include "ctran/plan/gpu/kernel.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/plan/gpu/packets.h"

namespace ctran::plan {
namespace {

/// One line: "a, b, c".
std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

/// Of a rank.
constexpr size_t kFewSteps = 8;

class KernelWriter {
 public:
  KernelWriter(const Plan& plan, const Properties& properties, int rank, bool isDirect)
      : plan_(plan),
        isDirect_(isDirect),
        properties_(properties),
        rank_(rank),
        packets_(plan),
        sent_(plan.channels.size(), 0),
        taken_(plan.channels.size(), 0) {
    if (rank < 0 || rank >= plan.ranks) {
      throw Error(ErrorKind::InvalidArgument,
                  "plan '" + plan.name + "' has no rank " + std::to_string(rank));
    }
    if (plan.ranks > static_cast<int>(device::kMaxRanks)) {
      refuse("it is for " + std::to_string(plan.ranks) + " ranks, a kernel knows " +
             std::to_string(device::kMaxRanks));
    }
    std::vector<int> ending(plan.ranks, 0);
    for (const Channel& channel : plan.channels) ending_.push_back(ending[channel.to.rank]++);
    signals_ = ending[rank];
    for (const auto& lanes : plan.programs) {
      for (const Lane& lane : lanes) {
        for (const Step& step : lane) {
          for (const int signal : step.signals) ++sent_[signal];
        }
      }
    }
    each_ = sent_;
    std::fill(sent_.begin(), sent_.end(), 0);
    findClosing();
  }

  int lanes() const { return static_cast<int>(plan_.programs[rank_].size()); }
  bool sendsPackets() const { return packets_.any(); }
  Kernel::Memory memory() const { return {signals_, plan_.scratch * plan_.depth}; }

  /// The function `run`, in a namespace.
  std::string run(const std::string& space) {
    std::string text = "namespace ctran::device::" + space + " {\n\n";
    text += "inline constexpr PlanShape kShape = {/*lanes*/ " + std::to_string(lanes()) +
            ", /*chunks*/ " + std::to_string(plan_.chunks) + ", /*scratch*/ " +
            std::to_string(plan_.scratch) + ", /*depth*/ " + std::to_string(plan_.depth) +
            ", /*packets*/ " + (packets_.any() ? "true" : "false") + "};\n";
    for (int l = 0; l < lanes(); ++l) text += lane(l);
    text +=
        "\ntemplate <class Element, class Op>\n"
        "CTRAN_INLINE void run(const PlanTeam& plan, const Block& block, const Element* input,\n"
        "                      Element* output, u64 count, const PlanReach& reach) {\n"
        "  PlanRun<Element, Op> r(plan, kShape, block, input, output, count, reach);\n"
        "  if (!r.begin()) return;\n" +
        forgetting() +
        "  for (; r.hasUnit(); r.next()) {\n"
        "    bool done = true;\n"
        "    switch (r.lane()) {\n";
    for (int l = 0; l < lanes(); ++l) {
      text += "      case " + std::to_string(l) + ":\n        done = lane" + std::to_string(l) +
              "(r);\n" + "        break;\n";
    }
    return text +
           "    }\n    if (!done) return;\n  }\n  r.end();\n}\n\n}  // namespace ctran::device::" +
           space + "\n\n";
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::Unsupported, "plan '" + plan_.name + "' cannot run on GPUs: " + why);
  }

  /// Every block for its own slice; the lanes of one do the same, which does no harm.
  std::string forgetting() const {
    std::string chunks;
    for (const int chunk : packets_.chunksOf(rank_)) {
      chunks += (chunks.empty() ? "" : ", ") + std::to_string(chunk);
    }
    if (chunks.empty()) return {};
    return "  if (r.isAging()) {\n    constexpr u32 kPackets[] = {" + chunks +
           "};\n    for (const u32 chunk : kPackets) r.forget(chunk);\n  }\n";
  }

  std::string lane(int l) {
    const Lane& steps = plan_.programs[rank_][l];
    std::string text = "\ntemplate <class Element, class Op>\nCTRAN_INLINE bool lane" +
                       std::to_string(l) + "(PlanRun<Element, Op>& r) {\n";
    if (steps.empty()) text += "  (void)r;\n";
    for (size_t s = 0; s < steps.size(); ++s) {
      text += "  // " + std::to_string(s) + ": " + toText(plan_, steps[s], rank_) + "\n";
      text += step(steps[s], properties_.finals[rank_][l][s], meets(steps, s));
    }
    return text + "  return true;\n}\n";
  }

  /// Whether the threads of a block meet after a step of packets: unless such a step comes next, in
  /// which each thread has the same places of chunks as in this one.
  bool meets(const Lane& steps, size_t s) const {
    if (packets_.needFences()) return true;
    const auto isCarried = [&](int channel) { return packets_.carry(channel); };
    const auto isClosing = [&](int channel) { return closing_[channel] || isCarried(channel); };
    const auto waitsFor = [](const Step& step, const auto& forNothing) {
      return !std::all_of(step.waits.begin(), step.waits.end(),
                          [&](const Wait& wait) { return forNothing(wait.channel); });
    };
    if (!std::all_of(steps[s].signals.begin(), steps[s].signals.end(), isClosing)) return true;
    // After the last step comes the next unit's first.
    for (size_t next = s + 1; next < steps.size(); ++next) {
      const Step& step = steps[next];
      if (step.moves()) return !step.packet || waitsFor(step, isCarried);
      if (waitsFor(step, isClosing)) return true;
      if (!std::all_of(step.signals.begin(), step.signals.end(), isClosing)) return true;
    }
    return !steps[0].moves() || !steps[0].packet || waitsFor(steps[0], isCarried);
  }

  /// The barrier of a rank's lanes with which its execution ends: nobody waits at it in the last
  /// unit of a kernel, which ends by itself.
  void findClosing() {
    std::vector<int> waits(plan_.channels.size(), 0), signals(plan_.channels.size(), 0);
    for (const Lane& lane : plan_.programs[rank_]) {
      for (size_t s = lane.size(); s > 0 && !lane[s - 1].moves(); --s) {
        for (const Wait& wait : lane[s - 1].waits) waits[wait.channel] += wait.count;
        for (const int signal : lane[s - 1].signals) ++signals[signal];
      }
    }
    for (size_t c = 0; c < plan_.channels.size(); ++c) {
      const Channel& channel = plan_.channels[c];
      closing_.push_back(channel.from.rank == rank_ && channel.to.rank == rank_ &&
                         channel.credits == 0 && waits[c] == each_[c] && signals[c] == each_[c]);
    }
  }

  std::string step(const Step& step, bool isWhole, bool meets) {
    std::string text;
    std::vector<std::string> waits, closingWaits, signals, closingSignals;
    for (const Wait& wait : step.waits) {
      const Channel& channel = plan_.channels[wait.channel];
      taken_[wait.channel] += wait.count;
      if (packets_.carry(wait.channel)) continue;
      (closing_[wait.channel] ? closingWaits : waits)
          .push_back("{" + std::to_string(ending_[wait.channel]) + ", " +
                     std::to_string(channel.from.rank) + ", " +
                     std::to_string(each_[wait.channel]) + ", " +
                     std::to_string(taken_[wait.channel] - channel.credits) + "}");
    }
    for (const int signal : step.signals) {
      ++sent_[signal];
      if (packets_.carry(signal)) continue;
      (closing_[signal] ? closingSignals : signals)
          .push_back("{" + std::to_string(plan_.channels[signal].to.rank) + ", " +
                     std::to_string(ending_[signal]) + ", " + std::to_string(each_[signal]) + ", " +
                     std::to_string(sent_[signal]) + "}");
    }
    if (!waits.empty()) text += "  if (!r.wait({" + joined(waits) + "})) return false;\n";
    if (!closingWaits.empty()) {
      text += "  if (!r.isLast() && !r.wait({" + joined(closingWaits) + "})) return false;\n";
    }
    if (!step.moves()) {
      if (!waits.empty()) {
        text += "  r.meet();\n";
      } else if (!closingWaits.empty()) {
        text += "  if (!r.isLast()) r.meet();\n";
      }
    }
    if (step.moves()) text += move(step, isWhole, meets);
    if (!signals.empty()) text += "  r.signal({" + joined(signals) + "});\n";
    if (!closingSignals.empty()) text += "  r.close({" + joined(closingSignals) + "});\n";
    return text;
  }

  std::string move(const Step& step, bool isWhole, bool meets) const {
    std::string text;
    std::vector<std::string> to, from, writers;
    uint32_t toPackets = 0, fromPackets = 0;
    for (size_t k = 0; k < step.to.size(); ++k) {
      to.push_back(at(step.to[k], step.count));
      if (Packets::isPacket(step, step.to[k])) toPackets |= 1u << k;
    }
    for (size_t k = 0; k < step.from.size(); ++k) {
      from.push_back(at(step.from[k], step.count));
      const bool is = packets_.any() && Packets::isPacket(step, step.from[k]);
      if (is) fromPackets |= 1u << k;
      writers.push_back(std::to_string(is ? packets_.writerOf(step.from[k]) : rank_));
    }
    const bool many = step.count > 1;
    // What is repeated has the same places, too.
    const bool meetsAfter = meets && many && !packets_.needFences();
    if (many) text += "  for (u32 i = 0; i < " + std::to_string(step.count) + "; ++i) {\n  ";
    // Chunks one after another may begin a block again.
    const std::string part =
        !many ? std::to_string(step.part)
              : "(" + std::to_string(step.part) + " + i) % " + std::to_string(plan_.chunks);
    const std::string whole = isWhole ? "true" : "false";
    const std::string places = part + ", {" + joined(to) + "}, {" + joined(from) + "}";
    if (packets_.any() && step.packet) {
      text += "  if (!r.template packets<" + whole + ", " +
              (packets_.needFences() ? "true" : "false") + ", " +
              (meets && !meetsAfter ? "true" : "false") + ", " + std::to_string(toPackets) + ", " +
              std::to_string(fromPackets) + ">(" + places + ", {" + joined(writers) +
              "})) return false;\n";
    } else {
      text += "  r.template move<" + whole + ">(" + places + ");\n";
    }
    if (many) text += "  }\n";
    if (meetsAfter && packets_.any() && step.packet) text += "  if (!r.met()) return false;\n";
    return text;
  }

  std::string at(const Place& place, int count) const {
    const std::string index = std::to_string(place.index) + (count > 1 ? " + i" : "");
    if (place.buffer == Buffer::Scratch) {
      return "r.scratch(" + std::to_string(place.rank) + ", " + index + ")";
    }
    if (place.rank != rank_ && isDirect_) {
      return "r." + std::string(nameOf(place.buffer)) + "Of(" + std::to_string(place.rank) + ", " +
             index + ")";
    }
    if (place.rank != rank_) {
      refuse("rank " + std::to_string(rank_) + " reaches the " + std::string(nameOf(place.buffer)) +
             " of rank " + std::to_string(place.rank));
    }
    return "r." + std::string(nameOf(place.buffer)) + "(" + index + ")";
  }

  const Plan& plan_;
  const bool isDirect_;
  const Properties& properties_;
  const int rank_;
  const Packets packets_;
  std::vector<bool> closing_;                 // per channel
  std::vector<int64_t> sent_, taken_, each_;  // per channel; lanes have theirs to themselves
  std::vector<int> ending_;  // which of the channels that end at its rank a channel is
  int signals_ = 0;
};

/// Whether some rank reaches that buffer of another one's caller.
bool reaches(const Plan& plan, Buffer buffer) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const auto isOthers = [&](const Place& place) {
      return place.buffer == buffer && place.rank != rank;
    };
    for (const Lane& lane : plan.programs[rank]) {
      for (const Step& step : lane) {
        if (std::any_of(step.from.begin(), step.from.end(), isOthers) ||
            std::any_of(step.to.begin(), step.to.end(), isOthers)) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

std::string runOf(const Plan& plan, const Properties& properties, int rank,
                  const std::string& space) {
  return KernelWriter(plan, properties, rank, true).run(space);
}

Kernel kernelOf(const Plan& plan, const Properties& properties, int rank, const std::string& space,
                const Plan* direct) {
  KernelWriter writer(plan, properties, rank, false);
  Kernel kernel;
  kernel.entry = "ctranPlan_" + space;
  kernel.lanes = writer.lanes();
  kernel.packets = writer.sendsPackets();
  kernel.memory = writer.memory();
  std::string& text = kernel.source;
  text = "// Rank " + std::to_string(rank) + " of plan " + plan.name + ": " +
         std::string(nameOf(plan.kind)) + " over " + std::to_string(plan.ranks) + " ranks.\n";
  // Few steps are compiled into the kernel: that costs nothing, and spares it time.
  if (plan.stepCount() <= kFewSteps * plan.ranks) text += "#define CTRAN_PLAN_STEP CTRAN_INLINE\n";
  text += "#include \"ctran/plan/gpu/run.cuh\"\n\n" + writer.run(space);
  const auto call = [&](const std::string& run, const std::string& team) {
    return run + "::run<CTRAN_ELEMENT, CTRAN_OP>(\n      arguments." + team +
           ", block, static_cast<const CTRAN_ELEMENT*>(arguments.input),\n"
           "      static_cast<CTRAN_ELEMENT*>(arguments.output), arguments.count, reach);\n";
  };
  std::string body = "  PlanReach reach = {};\n";
  if (direct != nullptr) {
    const Properties own = verify(*direct).properties;
    KernelWriter other(*direct, own, rank, true);
    kernel.direct = other.memory();
    text += other.run(space + "_direct");
    const auto whether = [&](Buffer buffer) { return reaches(*direct, buffer) ? "true" : "false"; };
    body += "  const Reached reached = reachOthers<" + std::string(whether(Buffer::Input)) + ", " +
            whether(Buffer::Output) +
            ">(arguments, block, reach);\n"
            "  if (reached == Reached::Failed) return;\n"
            "  if (reached == Reached::Direct) {\n    return " +
            call(space + "_direct", "direct") + "  }\n";
  }
  body += "  " + call(space, "plan");
  text +=
      "#ifdef CTRAN_ELEMENT\nnamespace ctran::device {\n\n"
      "CTRAN_INLINE void serve" +
      space + "(const PlanArguments& arguments, const Block& block) {\n" + body +
      "}\n\n}  // namespace ctran::device\n\nCTRAN_KERNEL(" + kernel.entry +
      ", PlanArguments, 512, (serve" + space + "(arguments, block)))\n#endif\n";
  return kernel;
}

}  // namespace ctran::plan
