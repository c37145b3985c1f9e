#include "engine/execution/group_sums.hpp"

#include <utility>

#include "runtime/state/gradient_norm.hpp"

namespace troupe::engine {

using transport::TagKind;

namespace {

/// Packs a group, a chunk and the holder that gives gradients, or gets the sum, into a message
/// index: each gives a chunk's gradients once, and gets its sum once.
std::uint64_t sum_index(GroupId group, std::size_t chunk, std::int32_t holder) {
  constexpr std::uint64_t kHoldersMax = 1 << 16;
  return (group.index() * kHoldersMax + static_cast<std::uint64_t>(holder)) * kHoldersMax + chunk;
}

bool carries_sum(ActionKind sends) {
  return sends == ActionKind::reduce || sends == ActionKind::reduce_relay;
}

}  // namespace

GroupNorm norm_of(const MeasuredChunk& measured) {
  const auto read = state::read_measure(measured.numbers);
  return {measured.group, read.squared_norm, read.finite, measured.chunk};
}

class GroupSums::Taken {
 public:
  explicit Taken(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}
  at::Tensor next() { return std::exchange(tensors_[next_++], {}); }

 private:
  std::vector<at::Tensor> tensors_;
  std::size_t next_ = 0;
};

GroupSums::GroupSums(const ParallelPlan& plan, DeviceId device, Gradients gradients)
    : plan_(plan), gradients_(std::move(gradients)) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    GroupSum sum = plan_sum(plan, GroupId{g});
    SumRole role = role_of(sum, device);
    sum.roles.clear();
    parts_.push_back({std::move(role), std::move(sum)});
  }
}

Parcel GroupSums::parcel(GroupId id, TagKind kind, const SumTransfer& to, at::Tensor tensor) const {
  const auto& holders = plan_.groups[id.index()].holders;
  const std::int32_t self = parts_[id.index()].role.place;
  return {{kind, sum_index(id, to.chunk, kind == TagKind::reduce ? self : to.holder)},
          plan_.devices[holders[static_cast<std::size_t>(to.holder)].index()].node.value,
          std::move(tensor)};
}

std::vector<Arrival> GroupSums::arrivals_of(const Action& action, at::ScalarType dtype) const {
  std::vector<Arrival> arrivals;
  const auto& holders = plan_.groups[action.group.index()].holders;
  const Part& part = parts_[action.group.index()];
  if (part.sum.is_call) return arrivals;
  for (const SumTransfer& from : part.sum.taken(part.role.place, action.kind)) {
    const bool is_sum = carries_sum(from.kind);
    arrivals.push_back(
        {{is_sum ? TagKind::reduced : TagKind::reduce,
          sum_index(action.group, from.chunk, is_sum ? part.role.place : from.holder)},
         plan_.devices[holders[static_cast<std::size_t>(from.holder)].index()].node.value,
         false,
         {part.sum.chunks[from.chunk].size()},
         dtype});
  }
  return arrivals;
}

std::vector<AwaitedMessage> GroupSums::senders_of(const Action& action) const {
  std::vector<AwaitedMessage> senders;
  const auto& holders = plan_.groups[action.group.index()].holders;
  const Part& part = parts_[action.group.index()];
  if (part.sum.is_call) return senders;
  for (const SumTransfer& from : part.sum.taken(part.role.place, action.kind)) {
    AwaitedMessage sent{holders[static_cast<std::size_t>(from.holder)]};
    sent.sent_in.kind = from.kind;
    sent.sent_in.group = action.group;
    senders.push_back(sent);
  }
  return senders;
}

/// Where the device keeps the sum: with its first use, or with what it keeps on standby.
at::Tensor& GroupSums::sum_of(GroupId group) {
  const auto& uses = parts_[group.index()].role.uses;
  return gradients_(group, uses.empty() ? std::nullopt : std::optional(uses.front()));
}

/// The first use's gradients, with those of the device's other uses added.
at::Tensor& GroupSums::add_up_uses(GroupId group) {
  const Part& part = parts_[group.index()];
  at::Tensor& sum = sum_of(group);
  for (std::size_t u = 1; u < part.role.uses.size(); ++u)
    sum.add_(gradients_(group, part.role.uses[u]));
  return sum;
}

at::Tensor GroupSums::chunk_of(GroupId id, std::size_t chunk) {
  const SumChunk& range = parts_[id.index()].sum.chunks[chunk];
  return sum_of(id).narrow(0, range.begin, range.size());
}

std::vector<Parcel> GroupSums::send(GroupId id) {
  const Part& part = parts_[id.index()];
  // What is added to -0 keeps its bits, also where it is -0.
  if (part.sum.is_call && part.role.uses.empty()) sum_of(id).fill_(-0.0);
  add_up_uses(id);
  std::vector<Parcel> parcels;
  if (part.sum.is_call) return parcels;
  for (const SumTransfer& to : part.sum.sent(part.role.place, ActionKind::reduce_send))
    parcels.push_back(parcel(id, TagKind::reduce, to, chunk_of(id, to.chunk)));
  return parcels;
}

/// Holder after holder; into the first one's tensor.
at::Tensor GroupSums::add_up_branch(const Part& part, std::size_t index, const at::Tensor& own,
                                    Taken& others) const {
  const SumBranch& branch = part.sum.branches[index];
  at::Tensor sum;
  for (std::int32_t user = 0; user < branch.users; ++user) {
    const bool is_own = branch.holders[static_cast<std::size_t>(user)] == part.role.place;
    const at::Tensor next = is_own ? own : others.next();
    if (sum.defined()) {
      sum.add_(next);
    } else {
      sum = next;
    }
  }
  return sum;
}

std::vector<Parcel> GroupSums::reduce_partial(GroupId id, std::vector<at::Tensor> others) {
  const Part& part = parts_[id.index()];
  if (!part.role.sends) add_up_uses(id);
  const std::size_t home = part.sum.branch_of[static_cast<std::size_t>(part.role.place)];
  Taken taken(std::move(others));
  std::vector<Parcel> parcels;
  for (const SumTransfer& to : part.sum.sent(part.role.place, ActionKind::reduce_partial))
    parcels.push_back(
        parcel(id, TagKind::reduce, to, add_up_branch(part, home, chunk_of(id, to.chunk), taken)));
  return parcels;
}

std::vector<Parcel> GroupSums::reduce(GroupId id, std::vector<at::Tensor> others) {
  const Part& part = parts_[id.index()];
  if (!part.role.sends && part.role.partials == 0) add_up_uses(id);
  const at::Tensor own = chunk_of(id, static_cast<std::size_t>(part.role.own_chunk));
  const std::size_t home = part.sum.branch_of[static_cast<std::size_t>(part.role.place)];
  Taken taken(std::move(others));
  at::Tensor sum;
  for (std::size_t b = 0; b < part.sum.branches.size(); ++b) {
    if (part.sum.branches[b].users == 0) break;  // On standby, and so are those behind it.
    const at::Tensor next = b == home ? add_up_branch(part, b, own, taken) : taken.next();
    if (sum.defined()) {
      sum.add_(next);
    } else {
      sum = next;
    }
  }
  if (!sum.is_same(own)) own.copy_(sum);
  std::vector<Parcel> parcels;
  for (const SumTransfer& to : part.sum.sent(part.role.place, ActionKind::reduce))
    parcels.push_back(parcel(id, TagKind::reduced, to, own));
  return parcels;
}

MeasuredChunk GroupSums::measure(GroupId id, std::span<const IndexRange> left_out) {
  const Part& part = parts_[id.index()];
  const std::int32_t own = part.role.own_chunk;
  const SumChunk& chunk = part.sum.chunks[static_cast<std::size_t>(own)];
  return {id, own, state::range_numbers(sum_of(id), {chunk.begin, chunk.end}, left_out)};
}

std::vector<Parcel> GroupSums::relay(GroupId id, std::vector<at::Tensor> sums) {
  const Part& part = parts_[id.index()];
  Taken taken(std::move(sums));
  for (const SumTransfer& from : part.sum.taken(part.role.place, ActionKind::reduce_relay))
    chunk_of(id, from.chunk).copy_(taken.next());
  std::vector<Parcel> parcels;
  for (const SumTransfer& to : part.sum.sent(part.role.place, ActionKind::reduce_relay))
    parcels.push_back(parcel(id, TagKind::reduced, to, chunk_of(id, to.chunk)));
  return parcels;
}

void GroupSums::receive(GroupId id, std::vector<at::Tensor> sums) {
  const Part& part = parts_[id.index()];
  if (part.sum.is_call) return;  // It is there.
  Taken taken(std::move(sums));
  for (const SumTransfer& from : part.sum.taken(part.role.place, ActionKind::reduce_receive))
    chunk_of(id, from.chunk).copy_(taken.next());
}

}  // namespace troupe::engine
