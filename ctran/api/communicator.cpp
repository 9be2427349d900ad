#include "ctran/communicator.h"

#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "ctran/api/convert.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/bootstrap/rendezvous.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/init_point.h"
#include "ctran/engine/named.h"

namespace ctran::api {
namespace {

ctran::CommunicatorOptions engineOptions(const CommunicatorOptions& options) {
  return {options.rank, options.size, options.name, options.store, options.timeout, options.hints};
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
  return engine_->hintsOfCall(hints);
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

std::shared_ptr<Communicator> Communicator::split(std::span<const int> ranks,
                                                  const std::string& name,
                                                  std::chrono::nanoseconds timeout,
                                                  WaitHooks* hooks) {
  auto part = engine_->split(ranks, name, timeout, hooks);
  return part ? std::make_shared<Communicator>(std::move(part)) : nullptr;
}

void Communicator::abort(const std::string& reason) { engine_->abort(reason); }
bool Communicator::isAborted() const { return engine_->isAborted(); }
void Communicator::finalize(WaitHooks* hooks) { engine_->finalize(hooks); }

Explanation Communicator::explain(CollectiveKind kind, size_t bytes, DataType type,
                                  const Hints& hints) const {
  const ctran::Explanation explanation =
      engine_->explain(kind, bytes, type, hints.empty() ? nullptr : engine_->hintsOfCall(hints));
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

Meeting::Meeting() : point_(std::make_unique<InitPoint>()) {}
Meeting::~Meeting() = default;
const std::string& Meeting::handle() const { return point_->handle(); }

std::shared_ptr<Communicator> Meeting::form(const std::vector<std::string>& handles,
                                            const std::string& occasion,
                                            const CommunicatorOptions& options, WaitHooks* hooks) {
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
