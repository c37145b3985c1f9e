// The messages of one phase of a collective: started together, awaited together.
//
// Belongs to the group's thread; completions come from the transport's.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/collectives/group.hpp"

namespace troupe::transport {

class Group::Round {
 public:
  /// `phase` tells the rounds of one call apart.
  Round(Group& group, std::uint32_t phase, Deadline deadline);

  /// Empty buffers are messages too; the callers decide which messages exist.
  void send(std::int32_t to_rank, ConstBuffer data);
  void receive(std::int32_t from_rank, MutableBuffer data);

  /// Waits until all have succeeded, one has failed, or the deadline has passed. After a failure
  /// the receives that still wait are withdrawn and the group is broken.
  Status wait();

 private:
  /// Shared with the callbacks, which can outlive the round after a failure.
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t pending = 0;
    std::optional<Error> failure;
  };
  struct Started {
    std::int32_t rank;
    Operation operation;
  };

  Peer peer_of(std::int32_t rank) const;
  Tag tag(std::int32_t from_rank, std::int32_t to_rank) const;
  void start(std::int32_t rank, Operation operation);
  Error missing() const;

  Group& group_;
  const std::uint32_t phase_;
  const Deadline deadline_;
  std::vector<Started> started_;
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

}  // namespace troupe::transport
