// Kernels that use a device window. Each takes words of 64 bits: the window, a buffer of this rank,
// and what else it says.

#include <comms/torchcomms/device/TorchCommDeviceWindow.hpp>

using namespace torchcomms::device;

namespace {

TORCHCOMMS_DEVICE TorchCommDeviceWindow& windowOf(const Word* words) {
  return *reinterpret_cast<TorchCommDeviceWindow*>(words[0]);
}

TORCHCOMMS_DEVICE const RegisteredBuffer& bufferOf(const Word* words) {
  return *reinterpret_cast<const RegisteredBuffer*>(words[1]);
}

}  // namespace

/// words[2]: bytes; [3]: which round of this it is, from 1; [4]: the number of failed calls. As
/// many blocks as ranks: each puts the buffer into the stripe of this rank at another one, and
/// waits until all stripes are here and all its own are there.
extern "C" __global__ void exchange(Word* words) {
  TorchCommDeviceWindow& window = windowOf(words);
  const Word bytes = words[2], ranks = static_cast<Word>(window.num_ranks()), round = words[3];
  const Word rank = static_cast<Word>(window.rank());
  const int target = static_cast<int>((rank + blockIdx.x) % ranks);
  const CoopScope scope = CoopScope::BLOCK;
  int failures = window.put(rank * bytes, bufferOf(words), 0, target, bytes, 0, 1, scope) != kOk;
  failures += window.wait_signal(0, CmpOp::EQ, ranks * round, scope) != kOk;
  failures += window.wait_signal_from(target, 0, CmpOp::EQ, round, scope) != kOk;
  failures += window.wait_counter(1, CmpOp::EQ, ranks * round, scope) != kOk;
  failures += window.read_signal(0) != ranks * round || window.read_counter(1) != ranks * round;
  failures += window.flush(scope) != kOk;
  if (failures != 0) words[4] = 1;
}

/// words[2]: how many rounds; [4]: the number of failed calls. Warps pass a number on from rank to
/// rank, by signals that are set, and meet.
extern "C" __global__ void pass_on(Word* words) {
  TorchCommDeviceWindow& window = windowOf(words);
  const int next = (window.rank() + 1) % window.num_ranks();
  const CoopScope scope = CoopScope::WARP;
  for (Word round = 1; round <= words[2]; ++round) {
    int failures = 0;
    if (window.rank() != 0) failures += window.wait_signal(2, CmpOp::GE, round, scope) != kOk;
    failures += window.signal(next, 2, SignalOp::SET, round, scope) != kOk;
    if (window.rank() == 0) failures += window.wait_signal(2, CmpOp::GE, round, scope) != kOk;
    failures += window.barrier(0, scope) != kOk;
    if (failures != 0) words[4] = 1;
  }
  if (threadIdx.x == 0 && window.reset_signal(2) != kOk) words[4] = 1;
  if (threadIdx.x == 0 && window.reset_counter(1) != kOk) words[4] = 1;
}

/// words[2]: how many rounds; [4]: how much is wrong. Each round a block writes its buffer anew,
/// puts it into the next rank's memory, and looks at what the one before has put here.
extern "C" __global__ void ring(Word* words) {
  TorchCommDeviceWindow& window = windowOf(words);
  const RegisteredBuffer& buffer = bufferOf(words);
  const int rank = window.rank(), ranks = window.num_ranks();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const CoopScope scope = CoopScope::BLOCK;
  auto* const mine = reinterpret_cast<Word*>(buffer.base);
  const auto* const got = static_cast<const Word*>(window.base());
  const auto number = [](int of, Word round, Word i) {
    return (static_cast<Word>(of) << 56) + (round << 24) + i;
  };
  for (Word round = 1; round <= words[2]; ++round) {
    for (Word i = threadIdx.x; i < buffer.size / sizeof(Word); i += blockDim.x) {
      mine[i] = number(rank, round, i);
    }
    __syncthreads();
    unsigned wrong = window.put(0, buffer, 0, next, buffer.size, 0, -1, scope) != kOk;
    wrong += window.wait_signal_from(previous, 0, CmpOp::EQ, round, scope) != kOk;
    for (Word i = threadIdx.x; i < buffer.size / sizeof(Word); i += blockDim.x) {
      wrong += got[i] != number(previous, round, i);
    }
    wrong += window.signal(previous, 1, SignalOp::ADD, 1, scope) != kOk;  // it may come again
    wrong += window.wait_signal_from(next, 1, CmpOp::EQ, round, scope) != kOk;
    if (wrong != 0) words[4] = wrong;
  }
}

/// words[2]: what is waited for in vain; [3]: a rank; [4]: becomes 100 and the status.
extern "C" __global__ void await_in_vain(Word* words) {
  TorchCommDeviceWindow& window = windowOf(words);
  const CoopScope scope = CoopScope::BLOCK;
  int status = kOk;
  if (words[2] == 0) status = window.wait_signal(1, CmpOp::GE, 7, scope);
  if (words[2] == 1) {
    status = window.wait_signal_from(static_cast<int>(words[3]), 1, CmpOp::GE, 7, scope);
  }
  if (words[2] == 2) status = window.barrier(0, scope);
  if (words[2] == 3) status = window.wait_counter(0, CmpOp::GE, 7, scope);
  if (threadIdx.x == 0) words[4] = 100 + static_cast<Word>(status);
}

/// words[2]: what is wrong with the call; [4]: becomes 100 and the status.
extern "C" __global__ void misuse(Word* words) {
  TorchCommDeviceWindow& window = windowOf(words);
  const RegisteredBuffer& buffer = bufferOf(words);
  const int other = window.num_ranks() - 1 - window.rank();
  int status = kOk;
  if (words[2] == 0) status = window.put(window.size() - 1, buffer, 0, other, 2);
  if (words[2] == 1) status = window.put(0, buffer, buffer.size, other, 1);
  if (words[2] == 2) status = window.signal(window.num_ranks(), 0);
  if (words[2] == 3) status = window.signal(other, -5);
  if (words[2] == 4) status = window.barrier(1);
  if (words[2] == 5) status = window.put(0, buffer, 0, other, 8, 0, 1);
  words[4] = 100 + static_cast<Word>(status);
}
