#include "torchcomms/csrc/argument_checks.hpp"

#include <algorithm>
#include <numeric>

#include "ctran/base/error.h"
#include "ctran/base/overlap.h"

namespace torch::comms {

namespace {

/// As the messages of operations spell it.
std::string label(std::string_view backend) {
  if (backend == "gloo") return "Gloo";
  if (backend == "nccl") return "NCCL";
  if (backend == "ncclx") return "NCCLX";
  return std::string(backend);
}

const std::byte* start(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

ctran::MemoryRange rangeOf(const at::Tensor& tensor) { return {start(tensor), tensor.nbytes()}; }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return ctran::overlap(rangeOf(a), rangeOf(b));
}

std::string overlapping(OpName op, const at::Tensor& a, const at::Tensor& b) {
  return "Input and output of " + std::string(toString(op)) +
         " overlap: " + ctran::nameOf(rangeOf(a)) + " and " + ctran::nameOf(rangeOf(b));
}

}  // namespace

bool hasMemory(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage()) return false;
  const c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto end = static_cast<size_t>(impl->storage_offset() + impl->numel());
  return storage->data() != nullptr && storage->nbytes() >= end * tensor.itemsize();
}

std::pair<std::string, std::string> missingMemory(const at::Tensor& tensor) {
  return {"The elements of the tensor, of shape " + c10::str(tensor.sizes()) +
              ", are not in its storage",
          "pass a plain tensor: subclasses (DTensor, FakeTensor) keep theirs elsewhere, as "
          "to_local() of a DTensor gives; or its storage has been freed or resized"};
}

void ArgumentChecks::fail(const std::string& message, const std::string& hint) const {
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, message, {}, std::string(toString(op)),
                     hint);
}

void ArgumentChecks::rankOutOfRange(std::string_view what, int wrong) const {
  fail(std::string(what) + " must be in range [0, " + std::to_string(size) + "), but got " +
       std::to_string(wrong));
}

void ArgumentChecks::unusable(const at::Tensor& tensor) const {
  if (!tensor.defined()) fail("Tensor is undefined");
  if (!onDevice(tensor.device())) {
    const bool sameKind = tensor.device().type() == device.type();
    const auto name = [&](at::Device d) {
      return sameKind ? d.str() : at::DeviceTypeName(d.type(), /*lower_case=*/true);
    };
    fail("Expected tensor on " + name(device) + " but found tensor on " + name(tensor.device()));
  }
  if (tensor.layout() != at::kStrided || tensor.is_nested()) {
    fail("Tensor must be dense for " + label(backend) + " operations", "call .to_dense()");
  }
  if (tensor.is_quantized()) {
    fail("Tensor must not be quantized", "pass its int_repr(); scale and zero point go separately");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    fail("Tensor is a view with a conjugation or negation that has not been carried out",
         "call .resolve_conj() or .resolve_neg()");
  }
  fail("Tensor must be contiguous for " + label(backend) + " operations", "call .contiguous()");
}

void ArgumentChecks::withoutMemory(const at::Tensor& tensor) const {
  // Nobody would touch it.
  if (backend == "fake" || device.type() == at::kMeta) return;
  const auto [what, hint] = missingMemory(tensor);
  fail(what, hint);
}

void ArgumentChecks::typesDiffer(const at::Tensor& a, const at::Tensor& b) const {
  fail("All tensors of " + std::string(toString(op)) + " must have the same dtype, but got " +
       std::string(c10::toString(a.scalar_type())) + " and " +
       std::string(c10::toString(b.scalar_type())));
}

void ArgumentChecks::allOfSize(const std::vector<at::Tensor>& list, int64_t count,
                               std::string_view message) const {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].numel() != count) {
      fail(std::string(message) + ": tensor " + std::to_string(i) + " has " +
           std::to_string(list[i].numel()) + " elements instead of " + std::to_string(count));
    }
  }
}

void ArgumentChecks::inPlaceOrApart(const at::Tensor& whole, const at::Tensor& part) const {
  if (start(part) != start(whole) + rank * part.nbytes() && overlap(whole, part)) {
    fail(overlapping(op, whole, part),
         "in place, the smaller tensor is part `rank` of the larger one");
  }
}

void ArgumentChecks::sameOrApart(const at::Tensor& a, const at::Tensor& b) const {
  if (start(a) != start(b) && overlap(a, b)) fail(overlapping(op, a, b));
}

void ArgumentChecks::apart(const at::Tensor& a, const at::Tensor& b) const {
  if (overlap(a, b)) fail(overlapping(op, a, b));
}

void ArgumentChecks::numbers(const at::Tensor& tensor, int64_t count, std::string_view name) const {
  usable(tensor);
  const std::string where = " for " + std::string(toString(op));
  if (tensor.scalar_type() != at::kLong) {
    fail(std::string(name) + " must be an int64 tensor" + where + ", but is of " +
         c10::toString(tensor.scalar_type()));
  }
  if (count >= 0 && tensor.numel() != count) {
    fail(std::string(name) + " must have " + std::to_string(count) + " elements" + where +
         ", but has " + std::to_string(tensor.numel()));
  }
}

void ArgumentChecks::splits(const at::Tensor& tensor, const std::vector<uint64_t>& sizes,
                            const std::string& which) const {
  const std::string where = " for " + std::string(toString(op));
  const std::string name = which + "_split_sizes";
  require(sizes.size() == static_cast<size_t>(size), name + " length must equal comm_size" + where);
  require(tensor.dim() > 0, which + " tensor must have at least one dimension" + where);
  const auto rows = static_cast<uint64_t>(tensor.size(0));
  uint64_t sum = 0;
  for (const uint64_t part : sizes) {
    // Compared before it is added: a sum of huge sizes must not wrap around.
    require(part <= rows - sum, "Sum of " + name + " exceeds " + which + " tensor size" + where);
    sum += part;
  }
}

void ArgumentChecks::members(const std::vector<int>& ranks) const {
  std::vector<bool> seen(size, false);
  for (const int r : ranks) {
    if (r < 0 || r >= size) {
      fail("Invalid rank " + std::to_string(r) + " in ranks. Valid ranks are 0 to " +
           std::to_string(size - 1));
    }
    if (seen[r]) fail("Rank " + std::to_string(r) + " appears multiple times in ranks");
    seen[r] = true;
  }
  if (!ranks.empty() && !seen[rank]) {
    fail("Current rank " + std::to_string(rank) + " is not included in the provided ranks list");
  }
}

int64_t rowSize(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace torch::comms
