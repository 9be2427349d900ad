// One rank's part: the same calls for all, the hostile one's among them.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/init_point.h"
#include "ctran/window/window.h"
#include "tests/hostile/heap.h"
#include "tests/hostile/mouth.h"

namespace ctran::testing {
namespace {

using std::chrono::milliseconds;
using Kind = CollectiveKind;

constexpr milliseconds kTimeout{700};      // of what the hostile member takes part in
constexpr milliseconds kCreation{4000};    // of communicators with it
constexpr milliseconds kGenerous{60'000};  // of what victims do among themselves

template <size_t n>
void copyText(char (&to)[n], const std::string& text) {
  std::strncpy(to, text.c_str(), n - 1);
}

std::byte* bytesOf(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// A collective on memory that lives as long as it may be written to.
struct Call {
  explicit Call(Communicator& communicator, Kind kind, size_t count)
      : input(count * static_cast<size_t>(communicator.size()), 1.0f), output(input.size()) {
    collective.kind = kind;
    collective.type = DataType::Float32;
    collective.count = count;
    collective.input = bytesOf(input);
    collective.output = bytesOf(output);
  }
  std::vector<float> input, output;
  Collective collective;
};

void run(Communicator& communicator, Kind kind, size_t count) {
  Call call(communicator, kind, count);
  communicator.run(call.collective);
}

void post(Communicator& communicator) {
  std::vector<std::shared_ptr<Work>> works;
  for (const size_t count : {100, 50'000, 3, 30'000}) {
    const auto call = std::make_shared<Call>(communicator, Kind::AllReduce, count);
    works.push_back(communicator.post(call->collective, {}, call));
  }
  for (const auto& work : works) work->wait();
}

/// Everybody sends to everybody.
void exchangeMessages(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  std::vector<std::shared_ptr<Work>> works;
  for (const size_t count : {10, 100'000, 20}) {
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      for (const Kind kind : {Kind::Send, Kind::Recv}) {
        const auto call = std::make_shared<Call>(communicator, kind, count);
        call->collective.root = peer;
        works.push_back(communicator.post(call->collective, {}, call));
      }
    }
  }
  for (const auto& work : works) work->wait();
}

void exchangeLists(Communicator& communicator) {
  for (const size_t count : {5, 30'000}) {
    Call call(communicator, Kind::AllToAllV, count);
    for (int r = 0; r < communicator.size(); ++r) {
      const size_t at = count * static_cast<size_t>(r) * sizeof(float);
      call.collective.inputs.push_back({bytesOf(call.input) + at, count});
      call.collective.outputs.push_back({bytesOf(call.output) + at, count});
    }
    communicator.run(call.collective);
  }
}

/// Dispatched in either way, and returned.
void exchangeRows(Communicator& communicator) {
  constexpr size_t kElements = 64, kRows = 40;
  const auto size = static_cast<size_t>(communicator.size());
  for (const bool dedup : {true, false}) {
    Call call(communicator, Kind::AllToAllVDynamic, kElements * kRows);
    std::vector<int64_t> counts(size, kRows), received(size, 0), indices;
    for (size_t i = 0; i < size * kRows; ++i) indices.push_back(static_cast<int64_t>(i % kRows));
    const auto rows = std::make_shared<RowExchange>();
    rows->inputRows = kRows;
    rows->outputRows = size * kRows;
    rows->sendCounts = counts.data();
    rows->sendIndices = indices.data();
    rows->indices = indices.size();
    rows->received = received.data();
    rows->dedup = dedup;
    call.collective.count = kElements;
    call.collective.rows = rows;
    communicator.run(call.collective);
    if (!dedup) continue;
    Call back(communicator, Kind::AllToAllVCombine, kElements * kRows);
    const auto returned = std::make_shared<RowExchange>(*rows);
    returned->inputRows = size * kRows;
    returned->outputRows = kRows;
    back.collective.count = kElements;
    back.collective.rows = returned;
    communicator.run(back.collective);
  }
}

std::vector<int> everybody(Communicator& communicator) {
  std::vector<int> all;
  for (int r = 0; r < communicator.size(); ++r) all.push_back(r);
  return all;
}

void split(Communicator& communicator) {
  const auto child = communicator.split(everybody(communicator), "child", kCreation);
  run(*child, Kind::AllReduce, 1000);
  child->finalize();
}

void useWindow(Communicator& communicator) {
  constexpr size_t kPart = 4096;
  const int rank = communicator.rank(), size = communicator.size();
  std::vector<std::byte> memory(kPart * static_cast<size_t>(size));
  const auto data = std::make_shared<std::vector<std::byte>>(kPart, std::byte{1});
  WindowOptions options;
  options.timeout = kTimeout;
  const auto window = Window::create(communicator, memory, options);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    window->put(peer, kPart * static_cast<size_t>(rank), *data, {}, data);
    window->signal(peer);
    window->setWord(peer, 1, 5);
    const auto got = std::make_shared<std::vector<std::byte>>(kPart);
    Window::finish(window->get(peer, 0, *got, {}, got));
    Window::finish(window->flush(peer));
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) Window::finish(window->waitSignal(peer));
  }
  window->close();
}

class Member {
 public:
  Member(int rank, Stage& stage) : rank_(rank), stage_(stage) {}

  Account take(const Scenario& scenario) {
    Account account;
    account.number = scenario.number;
    const bool isHostile = rank_ == scenario.hostile;
    std::unique_ptr<InitPoint> point;
    try {
      const auto safe = isHostile ? nullptr : makeSafe(scenario);
      ::setenv("CTRAN_TCP_CONNECTIONS", std::to_string(scenario.connections).c_str(), 1);
      if (scenario.state == State::Reconfigure) {
        point = std::make_unique<InitPoint>(hostIdentity(scenario.host(rank_)));
        tellHandle(scenario, point->handle());
      }
      beginHeapMark();
      const int64_t before = heapNow();
      try {
        act(scenario, point.get());
      } catch (const Error& error) {
        judge(scenario, error, account);
      }
      account.allocated = heapMost() - before;
      if (isHostile) account.lies = endLying();
      if (safe) {
        Call call(*safe, Kind::AllReduce, 1000);
        safe->run(call.collective);
        if (call.output[999] != 2.0f) copyText(account.wrong, "another communicator is wrong");
        safe->finalize();
      }
    } catch (const std::exception& error) {
      copyText(account.wrong, std::string("not where it may be: ") + error.what());
    }
    return account;
  }

 private:
  CommunicatorOptions optionsFor(const Scenario& scenario, const char* name) const {
    CommunicatorOptions options;
    options.name = name + std::to_string(scenario.number);
    options.store = std::make_shared<DirectoryStore>(stage_.store);
    options.hints["ctran::host"] = scenario.host(rank_);
    return options;
  }

  /// Of the victims alone, over what they have between them.
  std::shared_ptr<Communicator> makeSafe(const Scenario& scenario) const {
    CommunicatorOptions options = optionsFor(scenario, "safe");
    options.size = kRanks - 1;
    options.rank = rank_ < scenario.hostile ? rank_ : rank_ - 1;
    options.timeout = kGenerous;
    return Communicator::create(options);
  }

  void begin(const Scenario& scenario, State now) const {
    if (now == scenario.state && rank_ == scenario.hostile) beginLying(scenario);
  }

  void act(const Scenario& scenario, InitPoint* point) const {
    CommunicatorOptions options = optionsFor(scenario, "with");
    options.rank = rank_;
    options.size = kRanks;
    options.timeout = kCreation;
    begin(scenario, State::Create);
    std::shared_ptr<Communicator> communicator;
    if (point != nullptr) {
      begin(scenario, State::Reconfigure);
      communicator = point->form(handles(scenario), "an occasion", options);
    } else {
      communicator = Communicator::create(options);
    }
    communicator->setTimeout(kTimeout);
    const bool isMade = scenario.state != State::Create && scenario.state != State::Reconfigure;
    if (isMade) begin(scenario, scenario.state);
    actIn(scenario.state, *communicator);
    if (rank_ == scenario.hostile) lieNow();
    run(*communicator, Kind::AllReduce, 10);
    communicator->finalize();
  }

  static void actIn(State state, Communicator& communicator) {
    switch (state) {
      case State::Create:
      case State::Reconfigure:
      case State::Idle:
        return;
      case State::Small:
        for (int i = 0; i < 3; ++i) run(communicator, Kind::AllReduce, 100);
        return;
      case State::Large:
        run(communicator, Kind::AllReduce, 200'000);
        return run(communicator, Kind::AllGather, 50'000);
      case State::Posted:
        return post(communicator);
      case State::Messages:
        return exchangeMessages(communicator);
      case State::Lists:
        return exchangeLists(communicator);
      case State::Rows:
        return exchangeRows(communicator);
      case State::Split:
        return split(communicator);
      case State::Window:
        return useWindow(communicator);
    }
  }

  void tellHandle(const Scenario& scenario, const std::string& handle) const {
    copyText(stage_.handles[rank_], handle);
    stage_.handlesOf[static_cast<size_t>(rank_)].store(scenario.number + 1);
  }

  std::vector<std::string> handles(const Scenario& scenario) const {
    std::vector<std::string> all;
    for (int r = 0; r < kRanks; ++r) {
      while (stage_.handlesOf[static_cast<size_t>(r)].load() != scenario.number + 1) {
        ::sched_yield();
      }
      all.emplace_back(stage_.handles[r]);
    }
    return all;
  }

  static void judge(const Scenario& scenario, const Error& error, Account& account) {
    account.failed = true;
    account.timedOut = error.kind() == ErrorKind::Timeout;
    const auto& ranks = error.ranks();
    for (const int r : ranks) account.ranks |= r >= 0 && r < kRanks ? 1u << r : 0;
    const std::string text = error.what();
    account.named = std::find(ranks.begin(), ranks.end(), scenario.hostile) != ranks.end() ||
                    text.find("rank " + std::to_string(scenario.hostile)) != std::string::npos;
    copyText(account.error, text);
  }

  const int rank_;
  Stage& stage_;
};

}  // namespace

void serveAsMember(int orders, int rank, Stage& stage) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);  // the conductor ends this process
  ::signal(SIGTERM, SIG_IGN);
  Member member(rank, stage);
  while (true) {
    Scenario scenario;
    if (::recv(orders, &scenario, sizeof scenario, MSG_WAITALL) != sizeof scenario) ::_exit(0);
    const Account account = member.take(scenario);
    if (::send(orders, &account, sizeof account, MSG_NOSIGNAL) != sizeof account) ::_exit(0);
  }
}

}  // namespace ctran::testing
