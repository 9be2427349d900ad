#include "tests/gpu/litmus/world.h"

#include "ctran/collective/reduce/arguments.cuh"
#include "ctran/gpu/nvrtc.h"

namespace litmus {

std::string Variant::key() const {
  return element + " " + op + " " + std::to_string(ranks) + " " + std::to_string(payloadWords) +
         " " + std::to_string(scrubEvery);
}

std::string Variant::cubin() const {
  return compile(
      {"all_reduce",
       "#include \"ctran/collective/all_reduce/two_shot.cuh\"\n",
       architecture(0),
       {"CTRAN_ELEMENT=" + element, "CTRAN_OP=" + op, "CTRAN_RANKS=" + std::to_string(ranks),
        "CTRAN_PAYLOAD_WORDS=" + std::to_string(payloadWords),
        "CTRAN_SCRUB_EVERY=" + std::to_string(scrubEvery) + "u"}});
}

World::World(Gpus& gpus, int ranks, unsigned firstEpoch, uint64_t timeoutNs)
    : gpus_(gpus), host_(0, 4096 * ranks) {
  gpus_.synchronize();
  for (int i = 0; i < gpus.count(); ++i) gpus.clear(i, 0, Gpus::kBytes);
  const size_t slotBytes = (ranks <= 4 ? 1536 : 768) << 10;  // 3 regions of `ranks` fit 20 MB
  for (int rank = 0; rank < ranks; ++rank) {
    auto* control = reinterpret_cast<Control*>(static_cast<char*>(host_.host()) + 4096 * rank);
    auto* report = reinterpret_cast<Report*>(control + 1);
    *control = {};
    *report = {};
    control->timeoutNs = timeoutNs;
    controls_.push_back(control);
    reports_.push_back(report);
    const DevicePtr words = host_.device() + 4096 * rank;
    Team team{};
    team.rank = rank;
    team.size = ranks;
    team.slotBytes = slotBytes;
    for (int peer = 0; peer < ranks; ++peer) {
      team.scratch[peer] = reinterpret_cast<char*>(area(peer) + kScratchAt);
    }
    team.state = reinterpret_cast<State*>(area(rank));
    team.control = reinterpret_cast<const Control*>(words);
    team.report = reinterpret_cast<Report*>(words + sizeof(Control));
    teams_.push_back(team);
    const std::vector<unsigned> epochs(ctran::device::kMaxBlocks, firstEpoch);
    put(gpuOf(rank), area(rank), epochs.data(), epochs.size() * sizeof(unsigned));
  }
}

void World::load(const Variant& variant) {
  std::vector<Function>& functions = kernels_[variant.key()];
  if (!functions.empty()) return;
  const Driver& driver = Driver::get();
  const std::string cubin = variant.cubin();
  for (int i = 0; i < gpus_.count(); ++i) {
    gpus_[i].use();
    Module module = nullptr;
    check(driver.moduleLoadData(&module, cubin.data()), "cuModuleLoadData");
    for (const char* name : {"ctranAllReduceOneShot", "ctranAllReduceTwoShot"}) {
      functions.push_back(nullptr);
      check(driver.moduleGetFunction(&functions.back(), module, name), name);
    }
  }
}

Result World::launch(const Variant& variant, const Shape& shape, int rank, DevicePtr in,
                     DevicePtr out, uint64_t count, double factor) {
  Team team = teams_[rank];
  ctran::device::ReduceArguments arguments{};
  arguments.team = team;
  arguments.parts[0] = reinterpret_cast<const void*>(in);
  arguments.outputs[0] = reinterpret_cast<void*>(out);
  arguments.counts[0] = count;
  arguments.factor = factor;
  void* parameters[] = {&arguments};
  gpuOf(rank).use();
  const Function kernel = kernels_.at(variant.key())[rank % gpus_.count() * 2 + shape.twoShot];
  return Driver::get().launchKernel(kernel, shape.blocks, 1, 1, shape.threads, 1, 1, 0,
                                    streamOf(rank), parameters, nullptr);
}

void World::fill(DevicePtr at, int rank, unsigned word, size_t bytes) {
  gpuOf(rank).use();
  check(Driver::get().memsetD32Async(at, word, bytes / 4, streamOf(rank)), "cuMemsetD32Async");
}

void World::synchronize() { gpus_.synchronize(); }

}  // namespace litmus
