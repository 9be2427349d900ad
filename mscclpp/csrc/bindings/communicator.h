#pragma once

#include <atomic>
#include <memory>

#include "ctran/communicator.h"
#include "ctran/gpu.h"
#include "mscclpp/csrc/bindings/python.h"

namespace mscclpp::python {

/// What a Communicator of Python holds, and its operations use.
struct Shared {
  explicit Shared(std::shared_ptr<ctran::api::Communicator> engine) : engine(std::move(engine)) {}

  /// Makes the communicator of the ranks' GPUs, of which this rank has that one. Collective.
  void useGpu(int device);
  /// Throws what has broken it on the GPUs, too.
  void throwIfBroken() const {
    if (gpu) gpu->throwIfBroken();
  }

  const std::shared_ptr<ctran::api::Communicator> engine;
  std::shared_ptr<ctran::api::Communicator> gpu;  ///< from the first use of a GPU's memory on
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
};

/// A communicator takes calls of one thread at a time.
class Turn {
 public:
  explicit Turn(Shared& shared) : shared_(shared) {
    if (shared.busy.test_and_set(std::memory_order_acquire)) {
      raise(PyExc_RuntimeError, "another thread is in a call on this communicator");
    }
  }
  ~Turn() { shared_.busy.clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Shared& shared_;
};

/// What the communicator of the GPUs is called.
std::string gpuNameOf(const Shared& shared);

/// A communicator for Python. A new reference.
PyObject* newCommunicator(std::shared_ptr<ctran::api::Communicator> engine);
/// Of a Communicator of Python; raises TypeError for what is none.
const std::shared_ptr<Shared>& sharedOf(PyObject* object);

bool addCommunicator(PyObject* module);
bool addOperation(PyObject* module);
bool addInitPoint(PyObject* module);
bool addGpu(PyObject* module);
bool addMemory(PyObject* module);
bool addSignals(PyObject* module);
bool addEnvironment(PyObject* module);

/// Of the names and order that mscclpp.types gives them; raises ValueError for others.
ctran::DataType dataType(int64_t number);
/// The same; nothing is a sum.
ctran::ReduceKind reduceKind(int64_t number);
std::chrono::nanoseconds duration(double seconds);

}  // namespace mscclpp::python
