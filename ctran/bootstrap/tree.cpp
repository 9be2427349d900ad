// How many ranks meet: what each has below it goes up the tree, and where all are comes down.
#include <algorithm>
#include <set>

#include "ctran/base/log.h"
#include "ctran/bootstrap/hand_over_messages.h"

namespace ctran::hand_over {
namespace {

/// What parent and child say to each other, each followed by its number of bytes and these.
enum class Word : uint32_t {
  Report = 100,  ///< up: the places of the child and of all below it, who have come
  TimeUp,        ///< down: say who has not come
  Failed,        ///< a Failure
  Places,        ///< down: of all ranks
  Neighbours,    ///< down, where the child needs no more
};

/// It has the form of an Answer, which a caller gets instead if it is turned away.
struct Header {
  uint32_t protocol = kProtocol;
  Word word{};
  uint64_t bytes = 0;
};

struct Failure {
  Reply reply{};  ///< Missing, Lost or NoDescriptor
  int32_t count = 0;
  std::array<int32_t, kMaxRanks> ranks{};
};

Failure failureOf(Reply reply, std::span<const int> ranks) {
  Failure failure;
  failure.reply = reply;
  failure.count = static_cast<int32_t>(std::min<size_t>(ranks.size(), kMaxRanks));
  std::copy_n(ranks.begin(), failure.count, failure.ranks.begin());
  return failure;
}

/// A rank and its relations.
class Member {
 public:
  Member(JoiningRanks* joining, const BootstrapTree& tree, Socket parent)
      : joining_(joining), tree_(tree), parent_(std::move(parent)) {}

  HostGroup run(const JobKey& key, const std::string& host, Deadline deadline,
                const Interrupt& interrupt) {
    interrupt_ = interrupt;
    try {
      OwnHosts own = makeHosts(key, tree_.rank, tree_.size, host);
      parts_.push_back(own.places);
      hearBelow(deadline);
      if (tree_.isRoot()) {
        own.hosts->places = Places::merged(parts_);
      } else {
        // A rank waits at least as long as the ranks above it need to find out who is missing.
        const Places below = Places::merged(parts_);
        say(kParent, Word::Report, below.bytes(), deadline);
        parts_.clear();
        hearAbove(*own.hosts, deadline + kGrace * (2 + levelsAbove()));
        parent_.close();  // which waits for that
      }
      if (joining_ != nullptr) tellBelow(*own.hosts, deadline);
      HostGroup group;
      group.hosts = std::move(own.hosts);
      return group;
    } catch (const Error& error) {
      if (!isForWantOfDescriptors(error)) throw;
      spread(failureOf(Reply::NoDescriptor, std::array{tree_.rank}), tree_.rank);
      throw descriptorError(tree_.rank, error.message());
    }
  }

 private:
  static constexpr int kParent = -1;

  int levelsAbove() const {
    int levels = 0;
    for (int r = tree_.rank; r > 0; r = BootstrapTree::parentOf(r)) ++levels;
    return levels;
  }

  const UniqueFd& socketOf(int relation) const {
    return relation == kParent ? parent_.fd() : joining_->socketOf(relation);
  }

  std::vector<int> waitForNews(Deadline deadline) {
    const int above = parent_ ? parent_.get() : -1;
    if (joining_ != nullptr) {
      std::vector<int> news = joining_->hear(deadline, interrupt_, above);
      for (const int relation : news) {
        if (relation != kParent && !joining_->has(relation)) lose(relation);
      }
      return news;
    }
    waitReadable({&above, 1}, deadline, interrupt_);
    return {kParent};
  }

  std::vector<int> below() const {
    return joining_ == nullptr ? std::vector<int>() : joining_->present();
  }

  /// The receiver hangs up if something is wrong; that is noticed by the next read.
  void say(int relation, Word word, std::span<const std::byte> bytes, Deadline deadline) const {
    Header header;
    header.word = word;
    header.bytes = bytes.size();
    try {
      sendAll(socketOf(relation), bytesOf(header), {}, deadline, interrupt_);
      if (!bytes.empty()) sendAll(socketOf(relation), bytes, {}, deadline, interrupt_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::PeerLost) throw;
    }
  }

  // --- What goes wrong ---------------------------------------------------------------------------

  Error errorOf(const Failure& failure) const {
    const std::vector<int> ranks(failure.ranks.begin(), failure.ranks.begin() + failure.count);
    switch (failure.reply) {
      case Reply::Missing:
        return missingError(tree_.rank, ranks);
      case Reply::NoDescriptor:
        return descriptorError(ranks[0]);
      default:
        return lostError(ranks[0], "rank " + std::to_string(ranks[0]));
    }
  }

  /// Tells all but `except` that can be told at once.
  void spread(const Failure& failure, int except) const {
    std::vector<int> relations = below();
    if (parent_) relations.push_back(kParent);
    for (const int relation : relations) {
      if (relation == except) continue;
      Failure copy = failure;
      try {
        say(relation, Word::Failed, bytesOf(copy), Deadline{});
      } catch (const Error&) {
        // It is busy, and will see that this rank hangs up.
      }
    }
  }

  [[noreturn]] void fail(const Failure& failure, int from) const {
    spread(failure, from);
    throw errorOf(failure);
  }

  /// Throws the error of a relation that has hung up, or sent what makes no sense.
  [[noreturn]] void lose(int relation) const {
    const int rank = relation == kParent ? tree_.parent() : relation;
    if (relation != kParent && !joining_->has(relation)) {
      spread(failureOf(Reply::Lost, {&rank, 1}), relation);
      throw endedError(rank);
    }
    fail(failureOf(Reply::Lost, {&rank, 1}), relation);
  }

  // --- What others say ---------------------------------------------------------------------------

  void receive(int relation, std::span<std::byte> bytes, Deadline deadline) const {
    try {
      receiveAll(socketOf(relation), bytes, 0, deadline, interrupt_);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::PeerLost) lose(relation);
      if (error.kind() != ErrorKind::Timeout || relation == kParent) throw;
      fail(failureOf(Reply::Missing, {&relation, 1}), relation);
    }
  }

  /// The next word of a relation, whose bytes follow.
  Header hear(int relation, Deadline deadline) const {
    Header header;
    receive(relation, bytesOf(header), deadline);
    if (relation == kParent && header.word < Word::Report) {
      const Answer answer{header.protocol, static_cast<Reply>(header.word), header.bytes};
      if (const auto refusal = refusalOf(answer, tree_.rank, tree_.size)) throw *refusal;
    }
    if (header.protocol != kProtocol) lose(relation);
    return header;
  }

  std::vector<std::byte> read(int relation, const Header& header, uint64_t most,
                              Deadline deadline) const {
    if (header.bytes > most) lose(relation);
    std::vector<std::byte> bytes(header.bytes);
    receive(relation, bytes, deadline);
    return bytes;
  }

  Failure readFailure(int relation, const Header& header, Deadline deadline) const {
    Failure failure;
    const auto bytes = read(relation, header, sizeof failure, deadline);
    if (bytes.size() != sizeof failure) lose(relation);
    std::memcpy(&failure, bytes.data(), sizeof failure);
    const bool names = failure.count >= 1 && failure.count <= kMaxRanks &&
                       std::all_of(failure.ranks.begin(), failure.ranks.begin() + failure.count,
                                   [this](int r) { return r >= 0 && r < tree_.size; });
    if (!names) lose(relation);
    return failure;
  }

  void takeReport(int child, const Header& header, Deadline deadline) {
    const BootstrapTree subtree = tree_.at(child);
    const int ranks = subtree.ranks();
    if (!waitedFor_.erase(child)) lose(child);
    auto bytes = read(child, header, Places::mostBytes(ranks), deadline);
    Places places;
    try {
      places = Places::received(std::move(bytes), tree_.size, child);
    } catch (const Error&) {
      lose(child);
    }
    bool areBelow = places.size() == ranks;
    for (int i = 0; i < places.size() && areBelow; ++i) areBelow = subtree.isAbove(places[i].rank);
    if (!areBelow) lose(child);
    parts_.push_back(places);
  }

  /// Waits until all ranks below have come.
  void hearBelow(Deadline deadline) {
    if (joining_ == nullptr) return;
    for (int c = 0; c < tree_.children(); ++c) waitedFor_.insert(tree_.firstChild() + c);
    while (!waitedFor_.empty()) {
      std::vector<int> news;
      try {
        news = waitForNews(deadline);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        findMissing();
      }
      for (const int relation : news) {
        const Deadline soon = std::max(deadline, std::chrono::steady_clock::now() + kGrace);
        const Header header = hear(relation, soon);
        if (header.word == Word::Failed) fail(readFailure(relation, header, soon), relation);
        if (relation == kParent) {
          if (header.word != Word::TimeUp) lose(kParent);
          findMissing();
          break;  // it has heard the others that had news
        } else {
          if (header.word != Word::Report) lose(relation);
          takeReport(relation, header, soon);
        }
      }
    }
  }

  /// The time is up, here or above. Those who have come say who has not; returns if all have by
  /// now.
  void findMissing() {
    const Deadline until = std::chrono::steady_clock::now() + kGrace * std::max(1, tree_.levels());
    std::set<int> missing, asked;
    for (const int child : below()) {
      if (!waitedFor_.contains(child)) continue;
      say(child, Word::TimeUp, {}, until);
      asked.insert(child);
    }
    while (!asked.empty()) {
      std::vector<int> news;
      try {
        news = waitForNews(until);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        break;
      }
      for (const int relation : news) {
        const Header header = hear(relation, until + kGrace);
        if (header.word == Word::Failed) {
          const Failure failure = readFailure(relation, header, until + kGrace);
          if (relation == kParent || failure.reply != Reply::Missing) fail(failure, relation);
          missing.insert(failure.ranks.begin(), failure.ranks.begin() + failure.count);
          asked.erase(relation);
          waitedFor_.erase(relation);
        } else if (relation != kParent) {
          if (header.word != Word::Report) lose(relation);
          takeReport(relation, header, until + kGrace);
          asked.erase(relation);
        } else if (header.word != Word::TimeUp) {
          lose(kParent);
        }
      }
    }
    missing.insert(waitedFor_.begin(), waitedFor_.end());
    if (missing.empty()) return;
    fail(failureOf(Reply::Missing, std::vector<int>(missing.begin(), missing.end())), tree_.rank);
  }

  /// Waits until rank 0 has heard of all ranks, or something is wrong.
  void hearAbove(Hosts& hosts, Deadline deadline) {
    while (true) {
      for (const int relation : waitForNews(deadline)) {
        const Header header = hear(relation, deadline);
        if (header.word == Word::Failed) fail(readFailure(relation, header, deadline), relation);
        if (relation != kParent) lose(relation);    // it has said all that it has to
        if (header.word == Word::TimeUp) continue;  // this rank has reported meanwhile
        if (header.word == Word::Places) {
          hosts.places =
              Places::received(read(kParent, header, Places::mostBytes(tree_.size), deadline),
                               tree_.size, tree_.parent());
          if (hosts.places.size() != tree_.size) lose(kParent);
          hosts.neighbours = neighboursOf(hosts.places, tree_.rank);
          return;
        }
        if (header.word != Word::Neighbours) lose(kParent);
        const auto bytes = read(kParent, header, sizeof hosts.neighbours, deadline);
        if (bytes.size() != sizeof hosts.neighbours) lose(kParent);
        std::memcpy(&hosts.neighbours, bytes.data(), bytes.size());
        if (!makesSense(hosts.neighbours)) lose(kParent);
        return;
      }
    }
  }

  /// They are in order, this rank is one of them, and another has the places.
  bool makesSense(const Neighbours& neighbours) const {
    if (neighbours.count < 2 || neighbours.count > Neighbours::kMost) return false;
    const auto* const begin = neighbours.ranks.data();
    const auto* const end = begin + neighbours.count;
    return std::is_sorted(begin, end, std::less_equal<>()) && *begin >= 0 && end[-1] < tree_.size &&
           *begin != tree_.rank && std::binary_search(begin, end, tree_.rank);
  }

  /// A rank that has others below it, or is the first of its host, gets all places; the other ranks
  /// of a host find them in the memory of the host. This rank has others below it, so it has all
  /// places.
  void tellBelow(Hosts& hosts, Deadline deadline) {
    const NeighbourLists lists(hosts.places);
    hosts.neighbours = lists.of(tree_.rank);
    const Deadline limit = std::max(deadline, std::chrono::steady_clock::now() + kGrace);
    for (const int child : below()) {
      Neighbours neighbours = lists.of(child);
      const bool needsAll = tree_.at(child).children() > 0 || neighbours.ranks[0] == child;
      try {
        if (needsAll) {
          say(child, Word::Places, hosts.places.bytes(), limit);
        } else {
          say(child, Word::Neighbours, bytesOf(neighbours), limit);
        }
      } catch (const Error& error) {
        // A rank that needs it finds that out by itself, as do the ranks below it.
        if (error.kind() != ErrorKind::Timeout) throw;
        isDeaf(child);
      }
    }
    awaitReaders(limit);
  }

  /// Each child hangs up when it has read all. A connection that is closed before may drop the
  /// rest: the system gives up on one that nobody has, and whose other end is slow.
  void awaitReaders(Deadline limit) const {
    std::vector<int> readers = below();
    while (!readers.empty()) {
      std::vector<int> sockets;
      for (const int child : readers) sockets.push_back(socketOf(child).get());
      try {
        const std::vector<size_t> done = waitReadable(sockets, limit, interrupt_);
        for (size_t i = done.size(); i-- > 0;) {
          readers.erase(readers.begin() + static_cast<std::ptrdiff_t>(done[i]));
        }
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        for (const int child : readers) isDeaf(child);
        return;
      }
    }
  }

  void isDeaf(int child) const {
    log(LogComponent::Bootstrap, LogLevel::Warn, "rank %d does not listen to rank %d", child,
        tree_.rank);
  }

  JoiningRanks* const joining_;  // null without children
  const BootstrapTree tree_;
  Socket parent_;  // none for rank 0, nor after all has been heard from it
  Interrupt interrupt_;
  std::set<int> waitedFor_;  // children that have not reported
  std::vector<Places> parts_;
};

}  // namespace

HostGroup meetInTree(JoiningRanks* joining, const BootstrapTree& tree, Socket parent,
                     const JobKey& key, const std::string& host, Deadline deadline,
                     const Interrupt& interrupt) {
  return Member(joining, tree, std::move(parent)).run(key, host, deadline, interrupt);
}

}  // namespace ctran::hand_over
