// The ranks of NCCL groups as threads of this process, each with a device of its own.

#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.hpp"
#include "tests/transport/nccl/fake_device.hpp"
#include "tests/transport/test_node.hpp"
#include "transport/nccl/nccl_group.hpp"
#include "transport/registry.hpp"

namespace troupe::transport::testing {

constexpr auto kEnough = std::chrono::seconds(20);  // A loaded machine must not fail the suite.

class Ranks {
 public:
  explicit Ranks(int count, const std::string& library = "fake_nccl");
  /// Ends all groups and waits until NCCL has let go of what it can.
  ~Ranks();

  struct Rank {
    std::unique_ptr<Transport> transport;
    std::shared_ptr<NcclContext> context;
    std::shared_ptr<NcclStream> stream;
    std::unique_ptr<NcclGroup> group;
  };

  FakeNccl& nccl() { return nccl_; }
  Rank& operator[](std::size_t index) { return ranks_[index]; }
  std::size_t size() const { return ranks_.size(); }

  /// Runs `call` for each of `members` at once; outcomes in their order.
  template <class Call>
  auto each(const std::vector<Peer>& members, Call call) {
    using Outcome = decltype(call(std::size_t{}));
    std::vector<std::future<Outcome>> running;
    for (std::size_t place = 0; place < members.size(); ++place) {
      running.push_back(std::async(std::launch::async, [=] { return call(place); }));
    }
    std::vector<Outcome> outcomes;
    for (auto& one : running) outcomes.push_back(one.get());
    return outcomes;
  }

  /// Options that a test changes before `open`: attempts are short.
  NcclGroupOptions options;

  /// Makes the members' groups of this generation, out of those that they have. Gives the outcome
  /// at each member.
  std::vector<Status> open(const std::vector<Peer>& members, EpochNumber generation,
                           std::chrono::milliseconds limit = kEnough);

  /// An all-reduce of all members; its digest at each.
  std::vector<Outcome> sum(const std::vector<Peer>& members, std::uint64_t seed, int deadline_ms,
                           std::size_t count = 9000);

  /// Waits until these ranks have so many communicators; gives how many they have.
  int live_soon(int wanted);

 private:
  troupe::testing::ScratchFolder folder_;
  FakeNccl nccl_;
  int live_before_ = 0;  ///< Of tests before, which NCCL has not let go of.
  std::shared_ptr<InprocHub> hub_;
  std::vector<Rank> ranks_;
};

/// Of the sum in rank order of `count` elements.
std::uint64_t expected_digest(std::uint64_t seed, std::size_t ranks, std::size_t count);

}  // namespace troupe::transport::testing
