#include "ctran/plan/gpu/kernel.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/gpu/device/team.cuh"

namespace ctran::plan {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

/// One line: "a, b, c".
std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

class KernelWriter {
 public:
  KernelWriter(const Plan& plan, const Properties& properties, int rank)
      : plan_(plan),
        properties_(properties),
        rank_(rank),
        sent_(plan.channels.size(), 0),
        taken_(plan.channels.size(), 0) {
    if (rank < 0 || rank >= plan.ranks) {
      throw Error(ErrorKind::InvalidArgument,
                  "plan '" + plan.name + "' has no rank " + number(rank));
    }
    if (plan.ranks > static_cast<int>(device::kMaxRanks)) {
      refuse("it is for " + number(plan.ranks) + " ranks, a kernel knows " +
             number(device::kMaxRanks));
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
  }

  Kernel write(const std::string& space) {
    Kernel kernel;
    const auto& lanes = plan_.programs[rank_];
    kernel.entry = "ctranPlan_" + space;
    kernel.lanes = static_cast<int>(lanes.size());
    kernel.signals = signals_;
    kernel.scratch = plan_.scratch * plan_.depth;
    std::string& text = kernel.source;
    text = "// Rank " + number(rank_) + " of plan " + plan_.name + ": " +
           std::string(nameOf(plan_.kind)) + " over " + number(plan_.ranks) + " ranks.\n";
    text += "#include \"ctran/plan/gpu/run.cuh\"\n\n";
    text += "namespace ctran::device::" + space + " {\n\n";
    text += "inline constexpr PlanShape kShape = {/*lanes*/ " + number(kernel.lanes) +
            ", /*chunks*/ " + number(plan_.chunks) + ", /*scratch*/ " + number(plan_.scratch) +
            ", /*depth*/ " + number(plan_.depth) + "};\n";
    for (int l = 0; l < kernel.lanes; ++l) text += lane(l);
    text +=
        "\ntemplate <class Element, class Op>\n"
        "CTRAN_INLINE void run(const PlanTeam& plan, const Block& block, const Element* input,\n"
        "                      Element* output, u64 count) {\n"
        "  PlanRun<Element, Op> r(plan, kShape, block, input, output, count);\n"
        "  if (!r.begin()) return;\n"
        "  for (; r.hasUnit(); r.next()) {\n"
        "    bool done = true;\n"
        "    switch (r.lane()) {\n";
    for (int l = 0; l < kernel.lanes; ++l) {
      text += "      case " + number(l) + ":\n        done = lane" + number(l) + "(r);\n" +
              "        break;\n";
    }
    text += "    }\n    if (!done) return;\n  }\n  r.end();\n}\n\n";
    text += "}  // namespace ctran::device::" + space + "\n\n";
    text += "#ifdef CTRAN_ELEMENT\nCTRAN_KERNEL(" + kernel.entry +
            ", PlanArguments, 512,\n             (" + space +
            "::run<CTRAN_ELEMENT, CTRAN_OP>(arguments.plan, block,\n"
            "                 static_cast<const CTRAN_ELEMENT*>(arguments.input),\n"
            "                 static_cast<CTRAN_ELEMENT*>(arguments.output), arguments.count)))\n"
            "#endif\n";
    return kernel;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::Unsupported, "plan '" + plan_.name + "' cannot run on GPUs: " + why);
  }

  std::string lane(int l) {
    const Lane& steps = plan_.programs[rank_][l];
    std::string text = "\ntemplate <class Element, class Op>\nCTRAN_INLINE bool lane" + number(l) +
                       "(PlanRun<Element, Op>& r) {\n";
    if (steps.empty()) text += "  (void)r;\n";
    for (size_t s = 0; s < steps.size(); ++s) {
      text += "  // " + number(s) + ": " + toText(plan_, steps[s], rank_) + "\n";
      text += step(steps[s], properties_.finals[rank_][l][s]);
    }
    return text + "  return true;\n}\n";
  }

  std::string step(const Step& step, bool isWhole) {
    std::string text;
    std::vector<std::string> waits, signals;
    for (const Wait& wait : step.waits) {
      const Channel& channel = plan_.channels[wait.channel];
      taken_[wait.channel] += wait.count;
      waits.push_back("{" + number(ending_[wait.channel]) + ", " + number(channel.from.rank) +
                      ", " + number(each_[wait.channel]) + ", " +
                      number(taken_[wait.channel] - channel.credits) + "}");
    }
    for (const int signal : step.signals) {
      signals.push_back("{" + number(plan_.channels[signal].to.rank) + ", " +
                        number(ending_[signal]) + ", " + number(each_[signal]) + ", " +
                        number(++sent_[signal]) + "}");
    }
    if (!waits.empty()) text += "  if (!r.wait({" + joined(waits) + "})) return false;\n";
    if (!waits.empty() && !step.moves()) text += "  r.meet();\n";
    if (step.moves()) {
      std::vector<std::string> to, from;
      for (const Place& place : step.to) to.push_back(at(place, step.count));
      for (const Place& place : step.from) from.push_back(at(place, step.count));
      const bool many = step.count > 1;
      if (many) text += "  for (u32 i = 0; i < " + number(step.count) + "; ++i) {\n  ";
      // Chunks one after another may begin a block again.
      const std::string part =
          !many ? number(step.part) : "(" + number(step.part) + " + i) % " + number(plan_.chunks);
      text += "  r.template move<" + std::string(isWhole ? "true" : "false") + ">(" + part + ", {" +
              joined(to) + "}, {" + joined(from) + "});\n";
      if (many) text += "  }\n";
    }
    if (!signals.empty()) text += "  r.signal({" + joined(signals) + "});\n";
    return text;
  }

  std::string at(const Place& place, int count) const {
    const std::string index = number(place.index) + (count > 1 ? " + i" : "");
    if (place.buffer == Buffer::Scratch) {
      return "r.scratch(" + number(place.rank) + ", " + index + ")";
    }
    if (place.rank != rank_) {
      refuse("rank " + number(rank_) + " reaches the " + std::string(nameOf(place.buffer)) +
             " of rank " + number(place.rank));
    }
    return "r." + std::string(nameOf(place.buffer)) + "(" + index + ")";
  }

  const Plan& plan_;
  const Properties& properties_;
  const int rank_;
  std::vector<int64_t> sent_, taken_, each_;  // per channel; lanes have theirs to themselves
  std::vector<int> ending_;  // which of the channels that end at its rank a channel is
  int signals_ = 0;
};

}  // namespace

Kernel kernelOf(const Plan& plan, const Properties& properties, int rank,
                const std::string& space) {
  return KernelWriter(plan, properties, rank).write(space);
}

}  // namespace ctran::plan
