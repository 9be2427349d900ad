#include "ctran/rdma/connection.h"

#include <algorithm>

#include "ctran/base/checked.h"
#include "ctran/os/shared_memory.h"
#include "ctran/rdma/nearest.h"
#include "ctran/rdma/text.h"

namespace ctran {

using namespace ibverbx;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

/// From here on a message is cut among the devices.
constexpr size_t kCutFrom = 256 << 10;
/// A work request's length has 32 bits.
constexpr size_t kMostBytes = 1 << 30;

/// `wr_id` of a write without data, which finds out whether the peer is alive.
constexpr uint64_t kProbe = UINT64_MAX - 1;
/// A peer is asked after it has been silent for so long while somebody waits for it,
constexpr auto kSilence = seconds(1);
/// and not before it has had so long to connect.
constexpr auto kTimeToConnect = seconds(10);
/// How long a device has to say why a connection has ended.
constexpr auto kTimeToExplain = milliseconds(500);
/// How often the loop looks after a connection that is used,
constexpr int kLookMillis = 100;
/// and one whose completions nobody tells it of, as a thread that waits polls them itself: now, or
/// a moment ago.
constexpr int kMomentMillis = 10;
constexpr auto kPolled = milliseconds(1);

Error invalid(const std::string& what, const char* hint = "") {
  return {ErrorKind::InvalidArgument, what, {}, {}, hint};
}

}  // namespace

RdmaTransport::Connection::Connection(std::shared_ptr<RdmaLoop> loop, const RdmaOptions& options)
    : loop_(std::move(loop)), devices_(RdmaDevices::get()), timeout_(options.timeout) {
  if (timeout_ <= timeout_.zero()) throw invalid("timeout must be positive");
  RdmaCard card;
  card.token = devices_->token();
  const std::vector<size_t> wanted =
      options.devices.empty() ? devicesFor(*devices_, options.gpu) : options.devices;
  for (size_t i = 0; i < devices_->size(); ++i) {
    if (std::find(wanted.begin(), wanted.end(), i) == wanted.end()) continue;
    const IbDevice& device = (*devices_)[i];
    Expected<std::unique_ptr<RdmaRail>> rail = RdmaRail::open(device, i);
    if (!rail) {
      throw Error(ErrorKind::System,
                  "RDMA device " + device.name() + " cannot be used: " + rail.error().errStr);
    }
    devices_->watch((*rail)->watch());
    card.rails.push_back((*rail)->card());
    rails_.push_back(*std::move(rail));
  }
  url_ = card.url();
}

void RdmaTransport::Connection::connect(std::string_view url) {
  RdmaCard card = RdmaCard::parse(url);
  requireOurs();
  const std::lock_guard lock(mutex_);
  if (state_ != State::Bound) throw invalid("this RDMA transport has been connected before");
  const size_t count = std::min(card.rails.size(), rails_.size());
  for (size_t i = 0; i < count; ++i) {
    if (card.rails[i].qpNums.size() != rails_[i]->card().qpNums.size()) {
      throw invalid("the peer has " + std::to_string(card.rails[i].qpNums.size()) +
                        " queue pairs at each device, and this process has " +
                        std::to_string(rails_[i]->card().qpNums.size()),
                    "set CTRAN_IB_QPS alike on both");
    }
  }
  rails_.resize(count);
  card.rails.resize(count);
  peer_ = std::move(card);
  for (size_t i = 0; i < count; ++i) {
    RdmaRail& rail = *rails_[i];
    Maybe done = rail.connect(peer_.rails[i]);
    if (done) done = rail.arm();
    if (!done) {
      Error error(ErrorKind::System, "RDMA device " + rail.device().name() +
                                         " cannot connect to the peer: " + done.error().errStr);
      fail(error);
      throw error;
    }
    loop_->watch(rail.fd());
  }
  connectedAt_ = movedAt_ = Clock::now();
  state_ = State::Connected;
}

bool RdmaTransport::Connection::connected() {
  if (!devices_->areOurs()) return false;
  const std::lock_guard lock(mutex_);
  return state_ == State::Connected;
}

/// To be called before the lock is taken: in a forked child nobody may be there to give it back.
void RdmaTransport::Connection::requireOurs() const {
  if (!devices_->areOurs()) throw invalid("this RDMA transport is of the process that forked");
}

void RdmaTransport::Connection::requireUsable() const {
  if (state_ == State::Bound) {
    throw invalid("this RDMA transport is not connected", "call connect() with the peer's URL");
  }
}

/// Most transfers are to the memory of the one before.
const RdmaKey& RdmaTransport::Connection::keyOf(const std::string& text) {
  if (lastKeyText_.empty() || text != lastKeyText_) {
    lastKey_ = RdmaKey::parse(text);
    lastKeyText_ = text;
  }
  return lastKey_;
}

RdmaTransport::Connection::Operation RdmaTransport::Connection::operationOf(
    ibv_wr_opcode opcode, const RdmaSpan& span, const RdmaRemote& remote, bool notify) {
  if (!span.registration) throw invalid("this is no view of RDMA memory");
  spanOf(span.registration, span.data, span.bytes);
  if (&span.registration->devices() != devices_.get()) {
    throw invalid("this memory is registered at other devices than those of the transport",
                  "register it again, after the transport has been made");
  }
  const RdmaKey& key = keyOf(remote.key);
  if (key.token != peer_.token) {
    throw invalid("this key is not of the process that the transport is connected to");
  }
  const bool fits = remote.address >= key.address &&
                    isInside(remote.address - key.address, span.bytes, key.bytes) &&
                    (remote.bytes == 0 || span.bytes <= remote.bytes);
  if (!fits) {
    throw invalid(std::to_string(span.bytes) + " bytes at 0x" + hex(remote.address) +
                  " do not fit into the peer's buffer: " +
                  std::to_string(remote.bytes ? remote.bytes : key.bytes) + " bytes of " +
                  std::to_string(key.bytes) + " at 0x" + hex(key.address));
  }
  Operation made{RdmaFuture(weak_from_this()), span, remote.address, {}, opcode, notify};
  for (size_t i = 0; i < peer_.rails.size(); ++i) {
    const size_t device = peer_.rails[i].device;
    if (device >= key.rkeys.size()) {
      throw invalid("this key has none for a device that the transport uses",
                    "CTRAN_IB_HCA has to be the same for all of a process");
    }
    made.rkeys[i] = key.rkeys[device];
  }
  made.isNoticed = !notify;
  return made;
}

RdmaFuture RdmaTransport::Connection::transfer(ibv_wr_opcode opcode, const RdmaSpan& span,
                                               const RdmaRemote& remote, bool notify) {
  Ended ended;
  RdmaFuture future;
  requireOurs();
  {
    const std::lock_guard lock(mutex_);
    requireUsable();
    Operation made = operationOf(opcode, span, remote, notify);
    future = made.future;
    if (state_ == State::Failed) {
      ended.push_back({future, why_, nullptr});
    } else {
      span.registration->use();
      if (operations_.empty()) movedAt_ = Clock::now();
      operations_.push_back(std::move(made));
      pump();
      tearDownIfFailed(ended);
      if (next_ < 0) loop_->wake();
    }
  }
  tell(ended);
  return future;
}

RdmaFuture RdmaTransport::Connection::waitForWrite() {
  RdmaFuture future(weak_from_this());
  RdmaOutcome outcome;
  requireOurs();
  {
    const std::lock_guard lock(mutex_);
    requireUsable();
    if (notices_ > 0) {
      --notices_;
    } else if (state_ == State::Failed) {
      outcome = why_;
    } else {
      waits_.push_back(future);
      if (next_ < 0) loop_->wake();
      return future;
    }
  }
  future.finish(std::move(outcome));
  return future;
}

void RdmaTransport::Connection::close() {
  if (!devices_->areOurs()) {
    // Nothing of them is this process's: not to be touched, nor closed.
    for (auto& rail : rails_) static_cast<void>(rail.release());
    return;
  }
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    fail(Error(ErrorKind::Aborted, "the RDMA transport has been closed"));
    tearDown(ended);
  }
  tell(ended);
}

int RdmaTransport::Connection::service() {
  Ended ended;
  int next = -1;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::Bound && !rails_.empty()) devices_->pollEvents();
    if (state_ != State::Bound) {
      armRails();
      pollRails(ended);
    }
    pump();
    watchOver();
    tearDownIfFailed(ended);
    next = next_ = whenNext();
  }
  tell(ended);
  return next;
}

void RdmaTransport::Connection::progress() {
  Ended ended;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || state_ == State::Bound) return;
    pollRails(ended);
    pump();
    tearDownIfFailed(ended);
  }
  tell(ended);
}

void RdmaTransport::Connection::endPolling(bool sleeps) {
  if (!sleeps) polledAt_ = Clock::now();
  sleepers_ += sleeps;
  --pollers_;
  if (!sleeps) return;
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    armRails();
    pollRails(ended);  // what came before is not told of
    pump();
    tearDownIfFailed(ended);
  }
  tell(ended);
}

void RdmaTransport::Connection::beginSleeping() {
  const bool mayBeUnarmed = pollers_ > 0 || polledAt_.load() != Clock::time_point();
  if (sleepers_++ == 0 && mayBeUnarmed) loop_->wake();
}

/// As long as threads poll and nobody sleeps, the devices need not wake the loop: it looks after a
/// moment whether that is still so.
void RdmaTransport::Connection::armRails() {
  const bool isPolled =
      sleepers_ == 0 && (pollers_ > 0 || Clock::now() - polledAt_.load() < kPolled);
  for (const auto& rail : rails_) {
    if (isPolled) {
      rail->disarm();
    } else if (const Maybe done = rail->arm(); !done) {
      fail(Error(ErrorKind::System,
                 "RDMA device " + rail->device().name() + ": " + done.error().errStr));
    }
  }
}

void RdmaTransport::Connection::pollRails(Ended& ended) {
  for (const auto& rail : rails_) {
    const Maybe done = rail->poll([&](const ibv_wc& wc) { completed(*rail, wc, ended); });
    if (done) continue;
    fail(Error(ErrorKind::System,
               "RDMA device " + rail->device().name() + ": " + done.error().errStr));
  }
}

int RdmaTransport::Connection::whenNext() const {
  if (state_ == State::Bound || rails_.empty()) return -1;
  const auto isArmed = [](const auto& rail) { return rail->isArmed(); };
  if (!std::all_of(rails_.begin(), rails_.end(), isArmed)) return kMomentMillis;
  // For a while after the last transfer, too: the next needs not wake the loop then.
  const bool isBusy = !operations_.empty() || !waits_.empty() || state_ == State::Failed ||
                      Clock::now() - movedAt_ < kSilence;
  return isBusy ? kLookMillis : -1;
}

void RdmaTransport::Connection::pump() {
  while (state_ == State::Connected && nextId_ < endId() && postParts(nextId_)) ++nextId_;
  if (state_ == State::Connected && fenced_ > 0) postNotices();
  while (!operations_.empty() && operations_.front().isDone) {
    operations_.pop_front();
    ++firstId_;
  }
}

bool RdmaTransport::Connection::postParts(uint64_t id) {
  Operation& each = operation(id);
  const size_t bytes = each.span.bytes;
  const bool cuts = rails_.size() > 1 && bytes >= kCutFrom;
  size_t part = bytes;
  if (cuts) part = (bytes / rails_.size() + kPage) / kPage * kPage;
  part = std::min(part, kMostBytes);
  do {
    // A small write with a notice goes with it.
    const size_t at = each.notify && !cuts ? 0 : turn_ % rails_.size();
    RdmaRail& rail = *rails_[at];
    if (!rail.hasRoom()) return false;
    const size_t now = std::min(part, bytes - each.posted);
    const bool isLast = each.posted + now == bytes;
    const bool notifies =
        each.notify && isLast && at == 0 && each.elsewhere == 0 && fenced_ == 0 && !cuts;
    const Maybe done =
        rail.post(notifies ? IBV_WR_RDMA_WRITE_WITH_IMM : each.opcode, id,
                  numberOf(each.span.data) + each.posted,
                  each.span.registration->lkey(rail.index()), each.remote + each.posted,
                  each.rkeys[at], static_cast<uint32_t>(now), each.span.registration->gpu() < 0);
    if (!done) {
      fail(Error(ErrorKind::System,
                 "RDMA device " + rail.device().name() + ": " + done.error().errStr),
           false);
      return false;
    }
    ++turn_;
    ++each.underWay;
    each.elsewhere += at != 0;
    each.posted += now;
    each.isNoticed |= notifies;
    each.isPosted = isLast;
  } while (!each.isPosted);
  fenced_ += !each.isNoticed || each.elsewhere > 0;
  return true;
}

bool RdmaTransport::Connection::postNotices() {
  for (uint64_t id = firstId_; id < nextId_; ++id) {
    Operation& each = operation(id);
    if (each.elsewhere > 0 && each.opcode != IBV_WR_RDMA_READ) return false;
    if (each.isNoticed) continue;
    if (!rails_[0]->hasRoom()) return false;
    if (const Maybe done =
            rails_[0]->post(IBV_WR_RDMA_WRITE_WITH_IMM, id, 0, 0, each.remote, each.rkeys[0], 0);
        !done) {
      fail(Error(ErrorKind::System, done.error().errStr), false);
      return false;
    }
    ++each.underWay;
    each.isNoticed = true;
    fenced_ -= each.elsewhere == 0;
  }
  return true;
}

void RdmaTransport::Connection::completed(RdmaRail& rail, const ibv_wc& wc, Ended& ended) {
  movedAt_ = Clock::now();
  if (wc.status == IBV_WC_SUCCESS) {
    heard_ = true;
  } else {
    failed(rail, wc.status);
  }
  if (wc.wr_id == RdmaRail::kNotice) {
    if (wc.status == IBV_WC_SUCCESS) noticed(ended);
  } else if (wc.wr_id == kProbe) {
    --probes_;
  } else {
    Operation& each = operation(wc.wr_id);
    --each.underWay;
    each.hasFailed |= wc.status != IBV_WC_SUCCESS;
    if (&rail != rails_.front().get() && --each.elsewhere == 0 && each.isPosted && each.isNoticed) {
      --fenced_;
    }
    finishIfDone(each, ended);
  }
}

void RdmaTransport::Connection::noticed(Ended& ended) {
  if (waits_.empty()) {
    ++notices_;
    return;
  }
  ended.push_back({waits_.front(), std::nullopt, nullptr});
  waits_.pop_front();
}

void RdmaTransport::Connection::finishIfDone(Operation& each, Ended& ended) {
  if (!each.isPosted || !each.isNoticed || each.underWay > 0 || each.hasFailed) return;
  end(each, std::nullopt, ended);
}

void RdmaTransport::Connection::end(Operation& each, RdmaOutcome outcome, Ended& ended) {
  each.isDone = true;
  each.span.registration->release();
  ended.push_back({each.future, std::move(outcome), std::move(each.span.registration)});
}

/// What an event has told of a rail.
std::optional<Error> RdmaTransport::Connection::troubleOf(const RdmaRail& rail) const {
  const std::string device = "RDMA device " + rail.device().name();
  if (devices_->isGone(rail.index())) return Error(ErrorKind::System, device + " has been removed");
  const RdmaWatch& watch = *rail.watch();
  if (!watch.hasFailed.load(std::memory_order_acquire)) return std::nullopt;
  return Error(ErrorKind::System, device + ": " + watch.why);
}

void RdmaTransport::Connection::watchOver() {
  if (state_ == State::Bound) return;
  for (const auto& rail : rails_) {
    if (std::optional<Error> trouble = troubleOf(*rail)) return fail(*std::move(trouble));
  }
  if (state_ != State::Connected) return;
  const Clock::time_point now = Clock::now();
  const bool waits = !operations_.empty() || probes_ > 0;
  if (waits && now - movedAt_ > timeout_) {
    const auto passed = std::chrono::duration_cast<milliseconds>(timeout_).count();
    return fail(
        Error(ErrorKind::Timeout, "nothing has moved between this process and the peer for " +
                                      std::to_string(passed) + " ms"));
  }
  const bool mayAsk = heard_ || now - connectedAt_ > kTimeToConnect;
  if (!waits && !waits_.empty() && mayAsk && now - movedAt_ > kSilence) probe();
}

void RdmaTransport::Connection::probe() {
  for (const auto& rail : rails_) {
    if (const Maybe done = rail->post(IBV_WR_RDMA_WRITE, kProbe, 0, 0, 0, 0, 0); !done) {
      return fail(Error(ErrorKind::System, done.error().errStr), false);
    }
    ++probes_;
  }
  movedAt_ = Clock::now();
}

void RdmaTransport::Connection::failed(const RdmaRail& rail, ibv_wc_status status) {
  devices_->pollEvents();
  const std::string how =
      " (device " + rail.device().name() + ": " + VerbsLibrary::get().wc_status_str(status) + ")";
  if (std::optional<Error> trouble = troubleOf(rail)) return fail(*std::move(trouble));
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      if (devices_->isPortDown(rail.index())) {
        return fail(Error(ErrorKind::PeerLost,
                          "the peer cannot be reached: the link of RDMA device " +
                              rail.device().name() + " is down; see its cable and switch" + how));
      }
      return fail(Error(ErrorKind::PeerLost,
                        "the peer has not answered: it has ended, has not connected yet, or "
                        "cannot be reached" +
                            how));
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return fail(Error(ErrorKind::System,
                        "the peer's device has refused a transfer: the key is not good for that "
                        "memory; has it been released there?" +
                            how));
    case IBV_WC_WR_FLUSH_ERR:
      return fail(Error(ErrorKind::System, "the connection has ended" + how), false);
    default:
      return fail(Error(ErrorKind::System, "a transfer has failed" + how));
  }
}

void RdmaTransport::Connection::fail(Error error, bool isCause) {
  if (state_ == State::Failed && (isCause_ || !isCause)) return;
  if (state_ != State::Failed) failedAt_ = Clock::now();
  state_ = State::Failed;
  why_ = std::move(error);
  isCause_ = isCause;
  for (const auto& rail : rails_) rail->fail();
}

void RdmaTransport::Connection::tearDownIfFailed(Ended& ended) {
  if (state_ != State::Failed || rails_.empty()) return;
  const bool mayExplain =
      std::any_of(rails_.begin(), rails_.end(), [](const auto& rail) { return rail->underWay(); });
  if (isCause_ || !mayExplain || Clock::now() - failedAt_ > kTimeToExplain) tearDown(ended);
}

void RdmaTransport::Connection::tearDown(Ended& ended) {
  for (const auto& rail : rails_) loop_->unwatch(rail->fd());
  rails_.clear();  // a device has let go of the memory when its queue pairs are destroyed
  for (Operation& each : operations_) {
    if (!each.isDone) end(each, why_, ended);
  }
  firstId_ = nextId_ = endId();
  operations_.clear();
  for (const RdmaFuture& wait : waits_) ended.push_back({wait, why_, nullptr});
  waits_.clear();
}

void RdmaTransport::Connection::tell(Ended& ended) {
  for (End& each : ended) each.future.finish(std::move(each.outcome));
}

}  // namespace ctran
