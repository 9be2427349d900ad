// The loops, and the table of all of them for one instruction set.
#pragma once

#include "ctran/reduce/codec.inl"
#include "ctran/reduce/kernel_table.h"
#include "ctran/reduce/op.inl"

namespace ctran {
namespace {

/// `Finish` of the sources combined by `Op`. Every source is read once and the result written once;
/// what is accumulated stays in registers.
template <class Codec, class Op, class Finish>
struct Kernel {
  using Element = typename Codec::Element;

  // `kBlocks` vectors of memory per source, or if `kPartial` the first `bytes` bytes of one.
  // All of the loads come before the stores, so `dst` may be a source.
  template <int kBlocks, bool kPartial>
  static CTRAN_INLINE void step(std::byte* dst, const std::byte* const* src, int nsrc, size_t at,
                                size_t bytes, Element operand) {
    Vector<Element> total[kBlocks][Codec::kParts];
    for (int b = 0; b < kBlocks; ++b) {
      const std::byte* from = src[0] + at + b * kVectorBytes;
      Codec::decode(kPartial ? loadPartial(from, bytes) : load(from), total[b]);
    }
    for (int s = 1; s < nsrc; ++s) {
      for (int b = 0; b < kBlocks; ++b) {
        const std::byte* from = src[s] + at + b * kVectorBytes;
        Vector<Element> next[Codec::kParts];
        Codec::decode(kPartial ? loadPartial(from, bytes) : load(from), next);
        for (int p = 0; p < Codec::kParts; ++p) total[b][p] = Op::apply(total[b][p], next[p]);
      }
    }
    for (int b = 0; b < kBlocks; ++b) {
      std::byte* to = dst + at + b * kVectorBytes;
      for (auto& part : total[b]) part = Finish::apply(part, operand);
      const Raw raw = Codec::encode(total[b]);
      kPartial ? storePartial(to, raw, bytes) : store(to, raw);
    }
  }

  // As many large steps as there are; returns how far they got.
  static CTRAN_INLINE size_t loop(std::byte* dst, const std::byte* const* src, int nsrc,
                                  size_t bytes, Element operand) {
    constexpr int kBlocks = 4 / Codec::kParts;
    constexpr size_t kStep = kBlocks * kVectorBytes;
    size_t at = 0;
    for (; at + kStep <= bytes; at += kStep) step<kBlocks, false>(dst, src, nsrc, at, 0, operand);
    return at;
  }

  // For a constant number of sources, with all pointers in registers.
  template <int kSources>
  static CTRAN_INLINE size_t fixedLoop(std::byte* dst, const std::byte* const* src, size_t bytes,
                                       Element operand) {
    const std::byte* local[kSources];
    for (int s = 0; s < kSources; ++s) local[s] = src[s];
    return loop(dst, local, kSources, bytes, operand);
  }

  static void run(std::byte* dst, const std::byte* const* src, int nsrc, size_t bytes,
                  Element operand) {
    size_t at = 0;
    switch (nsrc) {
      case 2:
        at = fixedLoop<2>(dst, src, bytes, operand);
        break;
      case 3:
        at = fixedLoop<3>(dst, src, bytes, operand);
        break;
      case 4:
        at = fixedLoop<4>(dst, src, bytes, operand);
        break;
      default:
        at = loop(dst, src, nsrc, bytes, operand);
    }
    for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
      step<1, false>(dst, src, nsrc, at, 0, operand);
    }
    if (at < bytes) step<1, true>(dst, src, nsrc, at, bytes - at, operand);
  }
};

// What the table points to. `kBytes` is the size of an element in memory.

template <int kBytes, class Codec, class Op>
void combine(std::byte* dst, const std::byte* const* src, int nsrc, size_t count, int) {
  Kernel<Codec, Op, AsIs>::run(dst, src, nsrc, count * kBytes, {});
}

template <int kBytes, class Codec>
void average(std::byte* dst, const std::byte* const* src, int nsrc, size_t count, int divisor) {
  Kernel<Codec, Add, DividedBy>::run(dst, src, nsrc, count * kBytes, divisor > 0 ? divisor : nsrc);
}

template <class T, class Unsigned>
void averageIntegers(std::byte* dst, const std::byte* const* src, int nsrc, size_t count,
                     int divisor) {
  const int by = divisor > 0 ? divisor : nsrc;
  const auto operand = static_cast<Unsigned>(by);
  Kernel<Plain<Unsigned>, Add, QuotientBy<T>>::run(
      dst, src, nsrc, count * sizeof(T),
      operand == static_cast<uint64_t>(by) ? operand : Unsigned{0});
}

template <int kBytes, class Codec>
void multiply(std::byte* dst, const std::byte* src, size_t count, double factor) {
  Kernel<Codec, Add, MultipliedBy>::run(dst, &src, 1, count * kBytes,
                                        static_cast<typename Codec::Element>(factor));
}

class TableBuilder {
 public:
  // Sums and products are those of the unsigned type, where wrapping around is defined.
  template <class T, class Unsigned>
  constexpr TableBuilder& integer(DataType type) {
    constexpr int kBytes = sizeof(T);
    set(ReduceKind::Sum, type, combine<kBytes, Plain<Unsigned>, Add>);
    set(ReduceKind::Product, type, combine<kBytes, Plain<Unsigned>, Multiply>);
    set(ReduceKind::Min, type, combine<kBytes, Plain<T>, IntegerMin>);
    set(ReduceKind::Max, type, combine<kBytes, Plain<T>, IntegerMax>);
    set(ReduceKind::Avg, type, averageIntegers<T, Unsigned>);
    set(ReduceKind::BitAnd, type, combine<kBytes, Plain<uint32_t>, And>);
    set(ReduceKind::BitOr, type, combine<kBytes, Plain<uint32_t>, Or>);
    set(ReduceKind::BitXor, type, combine<kBytes, Plain<uint32_t>, Xor>);
    return *this;
  }

  constexpr TableBuilder& boolean(DataType type) {
    for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::BitOr}) {
      set(kind, type, combine<1, Boolean, Or>);
    }
    for (ReduceKind kind : {ReduceKind::Product, ReduceKind::Min, ReduceKind::BitAnd}) {
      set(kind, type, combine<1, Boolean, And>);
    }
    set(ReduceKind::BitXor, type, combine<1, Boolean, Xor>);
    return *this;
  }

  template <int kBytes, class Codec>
  constexpr TableBuilder& floating(DataType type) {
    linear<kBytes, Codec>(type);
    set(ReduceKind::Product, type, combine<kBytes, Codec, Multiply>);
    set(ReduceKind::Min, type, combine<kBytes, Codec, FloatMin>);
    set(ReduceKind::Max, type, combine<kBytes, Codec, FloatMax>);
    return *this;
  }

  template <int kBytes, class Codec>
  constexpr TableBuilder& complex(DataType type) {
    linear<kBytes, Codec>(type);
    set(ReduceKind::Product, type, combine<kBytes, Codec, MultiplyComplex>);
    return *this;
  }

  constexpr KernelTable build() const { return table_; }

 private:
  template <int kBytes, class Codec>
  constexpr void linear(DataType type) {
    set(ReduceKind::Sum, type, combine<kBytes, Codec, Add>);
    set(ReduceKind::PremulSum, type, combine<kBytes, Codec, Add>);
    set(ReduceKind::Avg, type, average<kBytes, Codec>);
    table_.scale[static_cast<int>(type)] = multiply<kBytes, Codec>;
  }

  constexpr void set(ReduceKind kind, DataType type, ReduceFn fn) {
    table_.reduce[static_cast<int>(kind)][static_cast<int>(type)] = fn;
  }

  KernelTable table_{};
};

constexpr KernelTable makeKernels() {
  return TableBuilder()
      .boolean(DataType::Bool)
      .integer<int8_t, uint8_t>(DataType::Int8)
      .integer<int16_t, uint16_t>(DataType::Int16)
      .integer<int32_t, uint32_t>(DataType::Int32)
      .integer<int64_t, uint64_t>(DataType::Int64)
      .integer<uint8_t, uint8_t>(DataType::UInt8)
      .integer<uint16_t, uint16_t>(DataType::UInt16)
      .integer<uint32_t, uint32_t>(DataType::UInt32)
      .integer<uint64_t, uint64_t>(DataType::UInt64)
      .floating<1, Float8E4M3>(DataType::Float8E4M3)
      .floating<1, Float8E5M2>(DataType::Float8E5M2)
      .floating<2, Float16>(DataType::Float16)
      .floating<2, BFloat16>(DataType::BFloat16)
      .floating<4, Plain<float>>(DataType::Float32)
      .floating<8, Plain<double>>(DataType::Float64)
      .complex<8, Plain<float>>(DataType::Complex64)
      .complex<16, Plain<double>>(DataType::Complex128)
      .build();
}

}  // namespace
}  // namespace ctran
