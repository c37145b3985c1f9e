#include "transport/collectives/group_round.hpp"

#include <set>
#include <string>
#include <utility>

namespace troupe::transport {

Group::Round::Round(Group& group, std::uint32_t phase, Deadline deadline)
    : group_(group), phase_(phase), deadline_(deadline) {}

Peer Group::Round::peer_of(std::int32_t rank) const {
  return group_.options_.members[static_cast<std::size_t>(rank)];
}

Tag Group::Round::tag(std::int32_t from_rank, std::int32_t to_rank) const {
  // Two ranks may share a node, so the ranks are part of the tag: 24 + 8 + 16 + 16 bits.
  const auto index = (std::uint64_t{group_.options_.group_id} << 40) |
                     (std::uint64_t{phase_} << 32) | (static_cast<std::uint64_t>(from_rank) << 16) |
                     static_cast<std::uint64_t>(to_rank);
  return make_tag(group_.options_.epoch, TagKind::collective, group_.calls_, index);
}

void Group::Round::send(std::int32_t to_rank, ConstBuffer data) {
  start(to_rank,
        group_.transport_->send(peer_of(to_rank), tag(group_.rank(), to_rank), std::move(data)));
}

void Group::Round::receive(std::int32_t from_rank, MutableBuffer data) {
  start(from_rank, group_.transport_->receive(peer_of(from_rank), tag(from_rank, group_.rank()),
                                              std::move(data)));
}

void Group::Round::start(std::int32_t rank, Operation operation) {
  {
    const std::lock_guard lock(progress_->mutex);
    ++progress_->pending;
  }
  operation.on_done([progress = progress_, rank](const Status& status) {
    const std::lock_guard lock(progress->mutex);
    --progress->pending;
    if (!status.ok() && !progress->failure) {
      progress->failure = status.error();
      progress->failure->message = "rank " + std::to_string(rank) + ": " + status.error().message;
    }
    progress->changed.notify_one();
  });
  started_.push_back({rank, std::move(operation)});
}

Error Group::Round::missing() const {
  std::set<std::int32_t> ranks;
  for (const auto& [rank, operation] : started_) {
    if (!operation.done()) ranks.insert(rank);
  }
  std::string names;
  for (const auto rank : ranks) {
    names += (names.empty() ? "" : ", ") + std::to_string(rank) + " (node " +
             std::to_string(peer_of(rank)) + ")";
  }
  return {Errc::timed_out, "a collective waited in vain for rank " + names, "",
          "see whether these nodes still run; give collectives more time if they do"};
}

Status Group::Round::wait() {
  std::optional<Error> failure;
  {
    std::unique_lock lock(progress_->mutex);
    const auto is_over = [this] { return progress_->pending == 0 || progress_->failure; };
    const bool in_time = progress_->changed.wait_until(lock, deadline_, is_over);
    failure = progress_->failure;
    if (in_time && !failure) return Done{};
  }
  if (!failure) failure = missing();
  for (const auto& started : started_) started.operation.cancel();
  group_.broken_ = failure;
  return *failure;
}

}  // namespace troupe::transport
