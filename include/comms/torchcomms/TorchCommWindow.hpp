#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <comms/torchcomms/TorchCommOptions.hpp>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace torch::comms {

class HookRegistry;
class TorchCommBackend;
struct RecordedSignal;

/// How `wait_signal` compares: the signal <op> the value waited for.
enum class SignalCmpOp : uint8_t { EQ, NE, LT, LE, GT, GE };

/// Whether a rank's memory can be mapped here, or only reached by operations.
enum class TorchCommWinAccessType : uint8_t {
  WIN_ACCESS_TYPE_UNIFIED,
  WIN_ACCESS_TYPE_SEPARATE,
};

struct TorchCommWindowAttr {
  TorchCommWinAccessType accessType;
};

struct PutOptions : OpOptions {};
struct GetOptions : OpOptions {};
struct FlushOptions : OpOptions {};
struct SignalOptions : OpOptions {};
struct WaitSignalOptions : OpOptions {};

/// Memory that every rank of a communicator exposes to the others, who read and write it without
/// its owner taking part, and signals with which they tell each other that they did.
///
/// Offsets count elements of the tensor that is moved. Operations to one rank take effect there in
/// the order of the calls: whoever has waited for a signal sees everything that its sender put
/// there before. With `async_op` false a put or signal has ended when its source may be reused, a
/// get when the data is here, a wait when the signal is. Every range is checked against the
/// target's memory at the call; a wrong one throws, and nothing is written.
///
/// One thread at a time. `TorchComm::new_window` and `window_allocate` make windows.
class TorchCommWindow : public std::enable_shared_from_this<TorchCommWindow> {
 public:
  using WorkPtr = c10::intrusive_ptr<TorchWork>;

  TorchCommWindow(int rank, int size, at::Device device)
      : rank_(rank), size_(size), device_(device) {}
  virtual ~TorchCommWindow() = default;

  /// Exposes a contiguous tensor; collective, the tensors of the ranks may differ. `owning`: the
  /// window holds the tensor; otherwise the caller does, until `tensor_deregister`.
  void tensor_register(const at::Tensor& tensor, bool owning = true);
  /// Collective: afterwards nobody touches the tensor.
  void tensor_deregister();
  /// Exposes `bytes` of fresh memory that can be mapped, zeros, with room for `signals` signals.
  void allocate(int64_t bytes, int64_t signals);

  /// Writes a contiguous tensor at element `offset` of the memory of rank `dst`.
  WorkPtr put(const at::Tensor& tensor, int dst, int64_t offset, bool async_op,
              const PutOptions& options = {});
  /// Reads a contiguous tensor from element `offset` of the memory of rank `src`.
  WorkPtr get(at::Tensor& tensor, int src, int64_t offset, bool async_op,
              const GetOptions& options = {});
  /// Ends when everything that was put to `dst` before is visible there.
  WorkPtr flush(int dst, bool async_op, const FlushOptions& options = {});

  /// Counts one signal of this rank at rank `dst`, who waits for it by `wait_signal(src)`.
  WorkPtr signal(int dst, bool async_op, const SignalOptions& options = {});
  WorkPtr wait_signal(int src, bool async_op, const WaitSignalOptions& options = {});
  /// Sets signal `index` of rank `dst`, who waits for it by comparing.
  WorkPtr signal(int64_t index, uint64_t value, int dst, bool async_op,
                 const SignalOptions& options = {});
  WorkPtr wait_signal(int64_t index, uint64_t value, SignalCmpOp op, bool async_op,
                      const WaitSignalOptions& options = {});

  /// The registered tensor of that rank, here: no copy. Of this rank's dtype, and of its shape
  /// where it has as many bytes, else flat. Throws where the memory is not UNIFIED.
  at::Tensor map_remote_tensor(int rank);
  /// A view of that rank's memory from element `offset` of `dtype`. As map_remote_tensor.
  at::Tensor get_tensor(int rank, at::IntArrayRef sizes, at::ScalarType dtype, int64_t offset);

  /// The address of the window for kernels, a `torchcomms::device::TorchCommDeviceWindow`
  /// (device/TorchCommDeviceWindow.hpp), with so many signals, counters and barriers; -1: as many
  /// as ranks. Collective, and the same on all ranks. A later call with the same counts returns the
  /// same address, and is local. It is good until `tensor_deregister`, before which the kernels of
  /// all ranks that use it have to have been launched.
  uint64_t get_device_window(int64_t signal_count = -1, int64_t counter_count = -1,
                             int64_t barrier_count = 1);
  /// The address of a `torchcomms::device::RegisteredBuffer` for kernels: of a contiguous tensor,
  /// which the window holds until `deregister_local_buffer`, or `tensor_deregister`. Kernels that
  /// use it have to have ended by then.
  uint64_t register_local_buffer(const at::Tensor& tensor);
  void deregister_local_buffer(uint64_t handle);
  /// The address at which this rank's GPU reaches that rank's memory.
  uint64_t get_nvlink_address(int peer);
  /// Throws: NVLink multicast is not used.
  uint64_t get_multimem_address();

  TorchCommWindowAttr get_attr(int rank) const;
  /// Bytes that this rank exposes.
  int64_t get_size() const;
  const at::Device& get_device() const { return device_; }
  int getRank() const { return rank_; }
  /// The number of ranks.
  int getSize() const { return size_; }
  /// The registered tensor, if the window holds it.
  const std::optional<at::Tensor>& get_tensor() const { return tensor_; }
  at::ScalarType dtype() const;
  at::IntArrayRef shape() const;

 protected:
  // What a backend does. Ranks and ranges have been checked; offsets are bytes.

  /// Makes the memory of a tensor UNIFIED, before it is exposed, where that can be.
  virtual void moveToShared(const at::Tensor& /*tensor*/) {}
  /// Collective. `memory` is flat and of bytes.
  virtual void open(const at::Tensor& memory, int64_t signals) = 0;
  virtual void close() = 0;
  virtual at::Tensor newMemory(int64_t bytes) = 0;  ///< bytes, zeros, UNIFIED
  virtual int64_t bytesOf(int rank) const = 0;
  virtual int64_t signalsOf(int rank) const = 0;
  /// What that rank's memory holds, kByte for anything; none where ranks do not tell each other.
  virtual std::optional<at::ScalarType> typeOf(int /*rank*/) const { return std::nullopt; }
  virtual TorchCommWinAccessType accessOf(int rank) const = 0;
  virtual std::shared_ptr<void> mapped(int rank) const = 0;
  virtual WorkPtr putBytes(const at::Tensor& source, int dst, int64_t offset, bool async_op,
                           const OpOptions& options) = 0;
  virtual WorkPtr getBytes(at::Tensor& destination, int src, int64_t offset, bool async_op,
                           const OpOptions& options) = 0;
  virtual WorkPtr flushPuts(int dst, bool async_op, const OpOptions& options) = 0;
  virtual WorkPtr addSignal(int dst, bool async_op, const OpOptions& options) = 0;
  virtual WorkPtr awaitSignal(int src, bool async_op, const OpOptions& options) = 0;
  virtual WorkPtr setSignal(int64_t index, uint64_t value, int dst, bool async_op,
                            const OpOptions& options) = 0;
  virtual WorkPtr compareSignal(int64_t index, uint64_t value, SignalCmpOp op, bool async_op,
                                const OpOptions& options) = 0;

  // For kernels; windows that are not of GPUs have nothing for them.

  virtual uint64_t deviceWindow(uint64_t signals, uint64_t counters, uint64_t barriers);
  virtual uint64_t addBuffer(const at::Tensor& tensor);
  virtual void removeBuffer(uint64_t handle);
  virtual uint64_t deviceAddress(int rank) const;

  /// Of the memory that `open` exposes.
  at::ScalarType exposedType() const { return dtype_; }

 private:
  friend class TorchComm;

  /// Issues an operation between the hooks of the communicator, where there are any, and records
  /// it, where its backend does not.
  template <typename Args, typename Issue, typename... Fields>
  WorkPtr hooked(OpName op, bool async_op, const OpOptions& options, const RecordedSignal& signal,
                 Issue issue, const Fields&... fields);
  /// The next one of those to that rank, or from it.
  RecordedSignal counted(std::vector<uint32_t>& counts, int rank);
  RecordedSignal numbered(int64_t index) const;
  RecordedSignal unnumbered() const;
  void expose(const at::Tensor& tensor, int64_t signals);
  void checkOpen() const;
  void checkRank(int rank) const;
  void checkTensor(const at::Tensor& tensor, const char* what) const;
  void checkType(const at::Tensor& tensor, int rank, const char* what) const;
  int64_t checkedOffset(int rank, int64_t offset, int64_t count, int64_t elementSize,
                        const char* what) const;
  void checkSignal(int rank, int64_t index) const;

  const int rank_;
  const int size_;
  const at::Device device_;
  std::shared_ptr<HookRegistry> hooks_;  ///< the communicator's; null for a window without one
  std::shared_ptr<TorchCommBackend> backend_;
  uint32_t number_ = 0;  ///< among the windows of a communicator whose calls are recorded
  std::vector<uint32_t> signals_, waits_;  ///< how many of each rank were recorded
  bool isReplayed_ = false;                ///< graphs send signals or wait for them
  bool open_ = false;
  std::optional<at::Tensor> tensor_;
  at::ScalarType dtype_ = at::kByte;
  std::vector<int64_t> shape_;
};

}  // namespace torch::comms
