#include "ctran/communicator.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "ctran/api/convert.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/bootstrap/rendezvous.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/engine/gpu_queue.h"
#include "ctran/engine/init_point.h"
#include "ctran/engine/named.h"
#include "ctran/gpu/memory.h"

namespace ctran::api {
namespace {

ctran::CommunicatorOptions engineOptions(const CommunicatorOptions& options) {
  return {options.rank,    options.size,  options.name, options.store,
          options.timeout, options.hints, options.gpus};
}

gpu::Stream streamOf(GpuStream stream) { return static_cast<gpu::Stream>(stream); }

ctran::EnqueueOptions engineOptions(const EnqueueOptions& options) {
  ctran::EnqueueOptions engine;
  engine.timeout = options.timeout;
  engine.aside = options.aside;
  engine.highPriority = options.highPriority;
  engine.blocks = options.blocks;
  engine.threads = options.threads;
  engine.symmetric = options.symmetric;
  if (options.keepAlive) engine.keepAlive = [owner = options.keepAlive] { return owner; };
  return engine;
}

ctran::GpuOptions engineOptions(const GpuOptions& options) {
  ctran::GpuOptions engine;
  engine.device = options.device;
  engine.highPriority = options.highPriority;
  return engine;
}

/// Throws Error(Unsupported) on all ranks if one has not the GPU that it is to use.
void checkGpus(ctran::Communicator& communicator, int device, WaitHooks* hooks) {
  struct Said {
    int device;
    int count;
    char why[200];
  } own{device, 0, ""};
  try {
    own.count = gpu::deviceCount();
  } catch (const Error& error) {
    std::strncpy(own.why, error.what(), sizeof own.why - 1);
  }
  const auto all = exchangeAll(communicator, own, {}, hooks);
  for (int r = 0; r < communicator.size(); ++r) {
    const Said& said = all[r];
    if (said.device >= 0 && said.device < said.count) continue;
    throw Error(
        ErrorKind::Unsupported,
        "rank " + std::to_string(r) + " of communicator '" + communicator.name() + "' has no GPU " +
            std::to_string(said.device) + ": " +
            (said.why[0] != 0 ? said.why : "the driver shows it " + std::to_string(said.count)),
        {r}, {}, "pass memory of the CPU, or see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
}

std::shared_ptr<StreamWork> workOf(std::shared_ptr<StreamOperation> operation) {
  return operation ? std::make_shared<StreamWork>(std::move(operation)) : nullptr;
}

/// As long as somebody holds it.
std::shared_ptr<Store> memoryStoreNamed(const std::string& name) {
  static std::mutex mutex;
  static auto& stores = *new std::map<std::string, std::weak_ptr<Store>>;
  const std::lock_guard lock(mutex);
  auto store = stores[name].lock();
  if (!store) stores[name] = store = std::make_shared<MemoryStore>();
  return store;
}

}  // namespace

std::shared_ptr<Store> openStore(const std::string& url) {
  const size_t colon = url.find("://");
  const std::string scheme = url.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : url.substr(colon + 3);
  if (scheme == "memory") return memoryStoreNamed(rest);
  if (scheme != "file" || rest.empty()) {
    throw Error(ErrorKind::InvalidArgument, "no store has the URL '" + url + "'", {}, {},
                "file:///DIRECTORY or memory://NAME");
  }
  if (::mkdir(rest.c_str(), 0700) != 0 && errno != EEXIST) {
    throw systemError("making the directory " + rest, errno);
  }
  return std::make_shared<DirectoryStore>(rest);
}

Collective engineCall(const Call& call, const ctran::Communicator& communicator) {
  Collective c;
  c.kind = call.kind;
  c.type = call.type;
  c.op = call.op;
  c.root = call.root;
  c.tag = call.tag;
  c.count = call.count;
  c.input = static_cast<const std::byte*>(call.input);
  c.output = static_cast<std::byte*>(call.output);
  for (const Block& block : call.inputs) c.inputs.push_back({block.data, block.count});
  for (const Block& block : call.outputs) c.outputs.push_back({block.data, block.count});
  c.source = call.source;
  if (call.prepared) {
    c.hints = call.prepared;
  } else {
    c.hints =
        call.hints.empty() ? communicator.standingHints() : communicator.hintsOfCall(call.hints);
  }
  return c;
}

std::shared_ptr<Communicator> Communicator::create(const CommunicatorOptions& options,
                                                   WaitHooks* hooks) {
  return std::make_shared<Communicator>(ctran::Communicator::create(engineOptions(options), hooks));
}

Communicator::Communicator(std::shared_ptr<ctran::Communicator> engine)
    : engine_(std::move(engine)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const { return engine_->rank(); }
int Communicator::size() const { return engine_->size(); }
const std::string& Communicator::name() const { return engine_->name(); }
std::chrono::nanoseconds Communicator::timeout() const { return engine_->timeout(); }
void Communicator::setTimeout(std::chrono::nanoseconds timeout) { engine_->setTimeout(timeout); }
void Communicator::setHints(const Hints& hints) { engine_->setHints(hints); }

std::shared_ptr<const CallHints> Communicator::prepare(const Hints& hints) const {
  return engine_->openHintsOfCall(hints);
}

std::vector<int> Communicator::hosts() const {
  std::vector<int> hosts;
  for (int r = 0; r < size(); ++r) hosts.push_back(engine_->map().hostOf(r));
  return hosts;
}

void Communicator::run(const Call& call, std::chrono::nanoseconds timeout, WaitHooks* hooks) {
  engine_->run(engineCall(call, *engine_), timeout, hooks);
}

std::shared_ptr<Work> Communicator::post(const Call& call, std::chrono::nanoseconds timeout,
                                         std::shared_ptr<void> keepAlive) {
  return engine_->post(engineCall(call, *engine_), timeout, std::move(keepAlive));
}

void Communicator::useGpu(const GpuOptions& options, WaitHooks* hooks) {
  checkGpus(*engine_, options.device, hooks);
  engine_->useGpu(engineOptions(options), hooks);
}

std::shared_ptr<Communicator> Communicator::splitForGpus(const std::string& name,
                                                         const GpuOptions& options,
                                                         WaitHooks* hooks) {
  checkGpus(*engine_, options.device, hooks);
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  std::vector<int> ranks(size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto made = engine_->splitPart(ranks, name, {.gpus = true}, hooks);
  engine_->addDependent(made);
  made->useGpu(engineOptions(options), hooks);
  return std::make_shared<Communicator>(made);
}

std::optional<int> Communicator::gpu() const {
  const auto queue = engine_->gpu();
  return queue ? std::optional(queue->device()) : std::nullopt;
}

std::shared_ptr<StreamWork> Communicator::enqueue(const Call& call, GpuStream stream,
                                                  const EnqueueOptions& options, WaitHooks* hooks) {
  return workOf(engine_->enqueue(engineCall(call, *engine_), streamOf(stream),
                                 engineOptions(options), hooks));
}

std::shared_ptr<StreamWork> Communicator::enqueueMessages(std::span<const Call> messages,
                                                          GpuStream stream,
                                                          const EnqueueOptions& options) {
  std::vector<Collective> all;
  for (const Call& call : messages) all.push_back(engineCall(call, *engine_));
  return workOf(engine_->enqueueMessages(all, streamOf(stream), engineOptions(options)));
}

std::shared_ptr<Communicator> Communicator::split(std::span<const int> ranks,
                                                  const std::string& name,
                                                  std::chrono::nanoseconds timeout,
                                                  WaitHooks* hooks) {
  auto part = engine_->split(ranks, name, timeout, hooks);
  return part ? std::make_shared<Communicator>(std::move(part)) : nullptr;
}

void Communicator::abort(const std::string& reason) { engine_->abort(reason); }
bool Communicator::isAborted() const { return engine_->isAborted(); }

void Communicator::throwIfBroken() const { engine_->throwIfBroken(); }

void Communicator::finalize(WaitHooks* hooks) { engine_->finalize(hooks); }

Explanation Communicator::explain(CollectiveKind kind, size_t bytes, DataType type,
                                  const Hints& hints) const {
  return explain(kind, bytes, type, hints.empty() ? nullptr : prepare(hints));
}

Explanation Communicator::explain(CollectiveKind kind, size_t bytes, DataType type,
                                  const std::shared_ptr<const CallHints>& prepared) const {
  const ctran::Explanation explanation = engine_->explain(kind, bytes, type, prepared);
  return {explanation.algorithm, explanation.why, explanation.toJson().print()};
}

std::string Communicator::tune(double seconds,
                               const std::function<void(double, const std::string&)>& progress) {
  return engine_->tune({seconds, progress}).toJson().print();
}

namespace {

std::shared_ptr<Communicator> around(std::shared_ptr<ctran::Communicator> engine) {
  return engine ? std::make_shared<Communicator>(std::move(engine)) : nullptr;
}

}  // namespace

std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank) {
  return around(ctran::findCommunicator(name, rank));
}

std::shared_ptr<Communicator> findCommunicator(uint64_t token) {
  return around(ctran::findCommunicator(token));
}

StreamWork::StreamWork(std::shared_ptr<StreamOperation> engine) : engine_(std::move(engine)) {}
WorkState StreamWork::state() const { return engine_->state(); }
void StreamWork::wait(WaitHooks* hooks) { engine_->wait(hooks); }
void StreamWork::makeWait(GpuStream stream) { engine_->makeWait(streamOf(stream)); }

InitPoint::InitPoint() : point_(std::make_unique<ctran::InitPoint>()) {}
InitPoint::~InitPoint() = default;
const std::string& InitPoint::handle() const { return point_->handle(); }

std::shared_ptr<Communicator> InitPoint::form(const std::vector<std::string>& handles,
                                              const std::string& occasion,
                                              const CommunicatorOptions& options,
                                              WaitHooks* hooks) {
  return std::make_shared<Communicator>(
      point_->form(handles, occasion, engineOptions(options), hooks));
}

Rendezvous::Rendezvous(const std::string& address, const std::string& secret)
    : engine_(std::make_unique<ctran::Rendezvous>(
          address.empty() ? std::vector<NetAddress>() : std::vector{parseNetAddress(address)},
          secret)) {}
Rendezvous::~Rendezvous() = default;

std::vector<std::string> Rendezvous::addresses() const {
  std::vector<std::string> texts;
  for (const NetAddress& address : engine_->addresses()) texts.push_back(address.text());
  return texts;
}

std::vector<std::string> Rendezvous::gather(int size, const std::string& word,
                                            std::chrono::nanoseconds timeout, WaitHooks* hooks) {
  const Blocking blocking(hooks);
  return engine_->gather(size, word, deadlineAfter(timeout), interruptOf(hooks));
}

std::vector<std::string> Rendezvous::join(const std::vector<std::string>& addresses,
                                          const std::string& secret, int rank, int size,
                                          const std::string& word, std::chrono::nanoseconds timeout,
                                          WaitHooks* hooks) {
  std::vector<NetAddress> parsed;
  for (const std::string& address : addresses) parsed.push_back(parseNetAddress(address));
  const Blocking blocking(hooks);
  return ctran::Rendezvous::join(parsed, secret, rank, size, word, deadlineAfter(timeout),
                                 interruptOf(hooks));
}

}  // namespace ctran::api
