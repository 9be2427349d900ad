#include "tests/unit/support/cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/unit/support/reference.h"

namespace ctran::testing {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr std::byte kGuardByte{0x5a};
constexpr size_t kGuardBytes = 64;

using Kind = CollectiveKind;
using Bytes = std::vector<std::byte>;

/// Numbers of all digits; and here and there two ranks have large ones that cancel each other,
/// while the others' are so small that a partial sum with a large one loses them. Thus sums depend
/// on their order, also those of types with few digits.
template <class T>
T number(double large, uint64_t common, uint64_t own, int rank) {
  const double mantissa = static_cast<double>(own >> 11) * 0x1p-52 - 1;
  if (common % 16 != 0) return static_cast<T>(std::ldexp(mantissa, static_cast<int>(own % 8) - 3));
  const int plus = static_cast<int>(common / 16 % 4);
  const int minus = (plus + 1 + static_cast<int>(common / 64 % 3)) % 4;
  if (rank % 4 == plus) return static_cast<T>(large);
  if (rank % 4 == minus) return static_cast<T>(-large);
  return static_cast<T>(std::ldexp(mantissa, -11));
}

void fillNumbers(DataType type, std::byte* to, size_t count, uint64_t seed, int rank, bool whole) {
  const size_t size = sizeOf(type);
  const double large = type == DataType::Float8E4M3 ? 256 : 16384;
  reference::withFormat(type, [&](auto get, auto put) {
    for (size_t i = 0; i < count; ++i, to += size) {
      const uint64_t common = mix(seed + i), own = mix(common + rank);
      using T = decltype(get(to));
      if constexpr (std::is_same_v<T, bool>) {
        *to = std::byte(own % 3);
      } else if constexpr (std::is_floating_point_v<T>) {
        if (whole) {
          put(to, static_cast<T>(own % 2 == 0 ? own % 3 + 1 : -1.0));
          continue;
        }
        put(to, number<T>(large, common, own, rank));
      } else if constexpr (std::is_integral_v<T>) {
        put(to, static_cast<T>(own));
      } else {
        using Part = typename T::value_type;
        if (whole) {
          put(to, T{static_cast<Part>(own % 3 + 1), 0});
          continue;
        }
        put(to, T{number<Part>(large, common, own, rank),
                  number<Part>(large, mix(common), mix(own), rank)});
      }
    }
  });
}

Bytes block(const Case& c, size_t count, int rank, int index) {
  Bytes bytes(count * sizeOf(c.type));
  if (reduces(c.kind)) {
    fillNumbers(c.type, bytes.data(), count, mix(c.seed ^ mix(index)), rank, c.whole);
    return bytes;
  }
  const uint64_t seed = mix(c.seed ^ mix(static_cast<uint64_t>(rank) << 32 | index));
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) reference::store(bytes.data() + i, mix(seed + i));
  for (; i < bytes.size(); ++i) bytes[i] = std::byte(mix(seed + i));
  return bytes;
}

bool inputIsListed(const Case& c) {
  switch (c.kind) {
    case Kind::ReduceScatterV:
    case Kind::AllToAllV:
      return true;
    case Kind::ReduceScatter:
    case Kind::Scatter:
    case Kind::AllToAll:
      return c.listed;
    default:
      return false;
  }
}

bool outputIsListed(const Case& c) {
  switch (c.kind) {
    case Kind::AllGatherV:
    case Kind::AllToAllV:
      return true;
    case Kind::AllGather:
    case Kind::Gather:
    case Kind::AllToAll:
      return c.listed;
    default:
      return false;
  }
}

std::vector<size_t> inputSizes(const Case& c, int rank, int size) {
  std::vector<size_t> counts;
  switch (c.kind) {
    case Kind::Barrier:
      break;
    case Kind::Broadcast:
      if (rank == c.root) counts.push_back(c.count);
      break;
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      for (int r = 0; r < size; ++r) counts.push_back(countOf(c, r, 0));
      break;
    case Kind::Scatter:
      for (int r = 0; rank == c.root && r < size; ++r) counts.push_back(c.count);
      break;
    case Kind::AllToAll:
    case Kind::AllToAllV:
      for (int r = 0; r < size; ++r) counts.push_back(countOf(c, rank, r));
      break;
    default:
      counts.push_back(countOf(c, rank, 0));
  }
  return counts;
}

std::vector<size_t> outputSizes(const Case& c, int rank, int size) {
  std::vector<size_t> counts;
  switch (c.kind) {
    case Kind::Barrier:
      break;
    case Kind::Reduce:
      if (rank == c.root) counts.push_back(c.count);
      break;
    case Kind::AllGather:
    case Kind::AllGatherV:
      for (int r = 0; r < size; ++r) counts.push_back(countOf(c, r, 0));
      break;
    case Kind::Gather:
      for (int r = 0; rank == c.root && r < size; ++r) counts.push_back(c.count);
      break;
    case Kind::AllToAll:
    case Kind::AllToAllV:
      for (int r = 0; r < size; ++r) counts.push_back(countOf(c, r, rank));
      break;
    default:
      counts.push_back(countOf(c, rank, 0));
  }
  return counts;
}

}  // namespace

std::string difference(DataType type, const std::byte* data, const Bytes& expected) {
  if (expected.empty() || std::memcmp(data, expected.data(), expected.size()) == 0) return {};
  const size_t size = sizeOf(type);
  for (size_t i = 0; i * size < expected.size(); ++i) {
    if (!reference::same(type, data + i * size, expected.data() + i * size)) {
      return " differs from element " + std::to_string(i) + " of " +
             std::to_string(expected.size() / size) + " on; ";
    }
  }
  return {};
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

bool reduces(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter ||
         kind == Kind::ReduceScatterV;
}

bool isRooted(Kind kind) {
  return kind == Kind::Broadcast || kind == Kind::Reduce || kind == Kind::Scatter ||
         kind == Kind::Gather;
}

bool isV(Kind kind) {
  return kind == Kind::AllGatherV || kind == Kind::ReduceScatterV || kind == Kind::AllToAllV;
}

std::string Case::describe() const {
  Collective collective;
  collective.kind = kind;
  collective.type = type;
  collective.op = op;
  collective.root = root;
  collective.count = count;
  return collective.describe() + (posted ? " posted" : " run") + (inPlace ? ", in place" : "") +
         (listed ? ", listed" : "") + ", misaligned by " + std::to_string(misalignment) +
         ", seed " + std::to_string(seed);
}

double factorOf(const Case& c, int rank) {
  return 0.5 + static_cast<double>(mix(c.seed + rank) % 8) / 4;
}

size_t countOf(const Case& c, int from, int to) {
  if (!isV(c.kind)) return c.count;
  const int other = c.kind == Kind::AllToAllV ? to : 0;
  const uint64_t random = mix(c.seed ^ static_cast<uint64_t>(from * 1009 + other));
  switch (random % 4) {
    case 0:
      return 0;
    case 1:
      return c.count;
    default:
      return c.count == 0 ? 0 : random / 4 % c.count;
  }
}

std::vector<Bytes> inputsOf(const Case& c, int rank, int size) {
  std::vector<Bytes> blocks;
  const auto sizes = inputSizes(c, rank, size);
  for (size_t i = 0; i < sizes.size(); ++i) {
    blocks.push_back(block(c, sizes[i], rank, static_cast<int>(i)));
  }
  return blocks;
}

std::vector<Bytes> expectedOf(const Case& c, int rank, int size, const Inputs& inputs) {
  std::vector<Bytes> expected;
  const auto reduced = [&](size_t index) {
    const size_t count = inputs[0][index].size() / sizeOf(c.type);
    std::vector<Bytes> scaled;
    std::vector<const std::byte*> sources;
    for (int r = 0; r < size; ++r) {
      const Bytes& input = inputs[r][index];
      sources.push_back(input.data());
      if (c.op.kind != ReduceKind::PremulSum) continue;
      scaled.emplace_back(input.size());
      reference::scale(c.type, scaled.back().data(), input.data(), count, factorOf(c, r));
    }
    for (size_t r = 0; r < scaled.size(); ++r) sources[r] = scaled[r].data();
    Bytes result(inputs[0][index].size());
    if (count > 0) reference::reduce(c.op.kind, c.type, result.data(), sources, count, size);
    expected.push_back(std::move(result));
  };
  switch (c.kind) {
    case Kind::Broadcast:
      expected.push_back(inputs[c.root][0]);
      break;
    case Kind::AllReduce:
      reduced(0);
      break;
    case Kind::Reduce:
      if (rank == c.root) reduced(0);
      break;
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      reduced(rank);
      break;
    case Kind::AllGather:
    case Kind::AllGatherV:
      for (int r = 0; r < size; ++r) expected.push_back(inputs[r][0]);
      break;
    case Kind::Gather:
      for (int r = 0; rank == c.root && r < size; ++r) expected.push_back(inputs[r][0]);
      break;
    case Kind::Scatter:
      expected.push_back(inputs[c.root][rank]);
      break;
    case Kind::AllToAll:
    case Kind::AllToAllV:
      for (int r = 0; r < size; ++r) expected.push_back(inputs[r][rank]);
      break;
    default:
      break;
  }
  return expected;
}

void Buffers::Region::allocate(const std::vector<size_t>& bytes, bool apart, size_t misalignment) {
  sizes = bytes;
  size_t total = 2 * kGuardBytes + misalignment;
  for (const size_t size : sizes) total += size + (apart ? kGuardBytes : 0);
  storage.assign(total, kGuardByte);
  std::byte* at = storage.data() + kGuardBytes + misalignment;
  for (const size_t size : sizes) {
    blocks.push_back(at);
    std::fill_n(at, size, kPoison);
    at += size + (apart ? kGuardBytes : 0);
  }
}

std::string Buffers::Region::damage() const {
  const std::byte* at = storage.data();
  const auto intact = [](std::byte b) { return b == kGuardByte; };
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!std::all_of(at, static_cast<const std::byte*>(blocks[i]), intact)) {
      return "bytes before block " + std::to_string(i) + " were written; ";
    }
    at = blocks[i] + sizes[i];
  }
  if (!std::all_of(at, storage.data() + storage.size(), intact)) {
    return "bytes behind the last block were written; ";
  }
  return {};
}

Buffers::Buffers(const Case& c, int rank, int size, const std::vector<Bytes>& inputs)
    : type_(c.type), inputData_(inputs) {
  const size_t element = sizeOf(c.type);
  const size_t misalignment = c.misalignment == 0 ? 0 : (c.misalignment + rank) % 13;
  std::vector<size_t> in = inputSizes(c, rank, size), out = outputSizes(c, rank, size);
  for (size_t& bytes : in) bytes *= element;
  for (size_t& bytes : out) bytes *= element;
  const bool together = c.kind == Kind::Broadcast || (c.inPlace && !in.empty() && !out.empty());

  if (!together) {
    input_.allocate(in, inputIsListed(c), misalignment);
    output_.allocate(out, outputIsListed(c), misalignment);
    for (size_t i = 0; i < in.size(); ++i) inputs_.push_back({input_.blocks[i], in[i]});
    for (size_t i = 0; i < out.size(); ++i) outputs_.push_back({output_.blocks[i], out[i]});
  } else if (in.size() > out.size()) {  // the output is this rank's block of the input
    output_.allocate(in, inputIsListed(c), misalignment);
    for (size_t i = 0; i < in.size(); ++i) inputs_.push_back({output_.blocks[i], in[i]});
    outputs_.push_back(inputs_[rank]);
  } else {  // the other way round, or the blocks of both are the same
    std::vector<size_t> both = out;
    for (size_t i = 0; in.size() == out.size() && i < in.size(); ++i) {
      both[i] = std::max(in[i], out[i]);
    }
    output_.allocate(both, outputIsListed(c), misalignment);
    for (size_t i = 0; i < out.size(); ++i) outputs_.push_back({output_.blocks[i], out[i]});
    for (size_t i = 0; i < in.size(); ++i) {
      inputs_.push_back({output_.blocks[in.size() == out.size() ? i : rank], in[i]});
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].empty()) std::memcpy(inputs_[i].data, inputs[i].data(), inputs[i].size());
  }

  collective_.kind = c.kind;
  collective_.type = c.type;
  collective_.op = c.op;
  if (c.op.kind == ReduceKind::PremulSum) collective_.op.factor = factorOf(c, rank);
  collective_.root = c.root;
  if (!isV(c.kind)) collective_.count = c.count;
  if (c.kind == Kind::AllGatherV || c.kind == Kind::ReduceScatterV) {
    collective_.count = countOf(c, rank, 0);
  }
  if (inputIsListed(c)) {
    for (const Span& b : inputs_) collective_.inputs.push_back({b.data, b.bytes / element});
  } else if (!inputs_.empty() && c.kind != Kind::Broadcast) {
    collective_.input = inputs_[0].data;
  }
  if (outputIsListed(c)) {
    for (const Span& b : outputs_) collective_.outputs.push_back({b.data, b.bytes / element});
  } else if (!outputs_.empty()) {
    collective_.output = outputs_[0].data;
  }
}

std::vector<Bytes> Buffers::outputs() const {
  std::vector<Bytes> blocks;
  for (const Span& b : outputs_) blocks.emplace_back(b.data, b.data + b.bytes);
  return blocks;
}

std::string Buffers::check(const std::vector<Bytes>& expected) const {
  std::string wrong = input_.damage() + output_.damage();
  if (outputs_.size() != expected.size()) return wrong + "the number of output blocks is odd";
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].bytes != expected[i].size()) return wrong + "an output block's size is odd";
    const std::string found = difference(type_, outputs_[i].data, expected[i]);
    if (!found.empty()) wrong += "output " + std::to_string(i) + found;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const std::byte* data = inputs_[i].data;
    if (std::any_of(outputs_.begin(), outputs_.end(),
                    [data](const Span& b) { return b.data == data && b.bytes != 0; })) {
      continue;
    }
    const Bytes& before = inputData_[i];
    if (!before.empty() && std::memcmp(data, before.data(), before.size()) != 0) {
      wrong += "input " + std::to_string(i) + " was modified; ";
    }
  }
  return wrong;
}

}  // namespace ctran::testing
