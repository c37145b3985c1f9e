#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "tests/transport/delayed_transport.hpp"
#include "tests/transport/test_node.hpp"

namespace troupe::transport::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

Outcome to_outcome(const Status& status) {
  if (status.ok()) return {true, Errc::internal, "", 0};
  return {false, status.error().code, status.error().message, 0};
}

class LocalNode final : public TestNode {
 public:
  explicit LocalNode(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
    transport_->on_peer_failure([failures = failures_](Peer peer, const Error&, bool /*was_up*/) {
      const std::lock_guard lock(failures->mutex);
      failures->peers.push_back(peer);
    });
  }

  std::vector<std::byte> address() override { return transport_->address(); }

  Outcome connect(Peer peer, const std::vector<std::byte>& address) override {
    return to_outcome(transport_->connect(peer, address));
  }

  int send(Peer peer, Tag tag, std::size_t bytes, std::uint64_t seed) override {
    auto memory = std::make_shared<std::vector<std::byte>>(pattern(seed, bytes));
    return keep(nullptr, transport_->send(peer, tag, {memory->data(), bytes, memory}));
  }

  int receive(Peer peer, Tag tag, std::size_t bytes) override {
    auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return keep(memory, transport_->receive(peer, tag, {memory->data(), bytes, memory}));
  }

  int collective(const CollectiveCall& call) override {
    auto& member = members_[{call.group_id, call.rank}];
    if (!member) member = std::make_unique<Member>(*transport_, call);
    calls_[next_] = std::async(std::launch::async, [&member = *member, call]() -> Outcome {
      if (!member.group) return to_outcome(member.group.error());
      return run_collective(member.group.value(), call);
    });
    return next_++;
  }

  void cancel(int operation) override { running_.at(operation).second.cancel(); }

  Outcome wait(int operation, int milliseconds) override {
    if (calls_.contains(operation)) return calls_.at(operation).get();
    const auto& [memory, handle] = running_.at(operation);
    auto outcome = to_outcome(handle.wait(within(std::chrono::milliseconds(milliseconds))));
    if (outcome.ok && memory) outcome.digest = digest_of(memory->data(), memory->size());
    return outcome;
  }

  void disconnect(Peer peer) override {
    transport_->disconnect(peer, {Errc::cancelled, "the test disconnects", "", ""});
  }

  void drop_older_than(EpochNumber epoch) override { transport_->drop_older_than(epoch); }

  std::vector<Peer> failures() override {
    const std::lock_guard lock(failures_->mutex);
    return failures_->peers;
  }

  void vanish() override {
    calls_.clear();
    members_.clear();
    transport_.reset();
  }

 private:
  using Memory = std::shared_ptr<std::vector<std::byte>>;
  struct Failures {
    std::mutex mutex;
    std::vector<Peer> peers;
  };

  /// One rank of a group, on a transport that may delay what it sends.
  struct Member {
    Member(Transport& transport, const CollectiveCall& call)
        : delayed(transport, call.delayed ? call.seed + 1 : 0),
          group(Group::create(delayed, {call.members, call.rank, 1, call.group_id})) {}
    DelayedTransport delayed;
    Result<Group> group;
  };

  int keep(Memory memory, Operation operation) {
    running_.emplace(next_, std::pair(std::move(memory), std::move(operation)));
    return next_++;
  }

  std::shared_ptr<Failures> failures_ = std::make_shared<Failures>();
  std::unique_ptr<Transport> transport_;
  std::map<int, std::pair<Memory, Operation>> running_;
  std::map<std::pair<std::uint32_t, std::int32_t>, std::unique_ptr<Member>> members_;
  std::map<int, std::future<Outcome>> calls_;  // Declared last: joined first.
  int next_ = 0;
};

}  // namespace

std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = mix(seed * 0x9E3779B97F4A7C15u + at);
    std::memcpy(data.data() + at, &word, std::min<std::size_t>(8, bytes - at));
  }
  return data;
}

std::uint64_t digest_of(const std::byte* data, std::size_t bytes) {
  std::uint64_t digest = bytes + 1;
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, std::min<std::size_t>(8, bytes - at));
    digest = mix(digest + word);
  }
  return digest;
}

std::uint64_t digest_of_pattern(std::uint64_t seed, std::size_t bytes) {
  const auto data = pattern(seed, bytes);
  return digest_of(data.data(), data.size());
}

std::unique_ptr<TestNode> make_local_node(std::unique_ptr<Transport> transport) {
  return std::make_unique<LocalNode>(std::move(transport));
}

}  // namespace troupe::transport::testing
