#include "engine/execution/group_sums.hpp"

#include <cmath>
#include <utility>

#include "runtime/state/gradient_norm.hpp"

namespace troupe::engine {

using transport::TagKind;

namespace {

/// Packs a group and two of its holders into a message index.
std::uint64_t sum_index(GroupId group, std::size_t from, std::size_t to) {
  constexpr std::uint64_t kHoldersMax = 1 << 16;
  return (group.index() * kHoldersMax + from) * kHoldersMax + to;
}

/// Holders that have gradients; those on standby stand behind them.
std::size_t users_of(const ParameterGroup& group) {
  return static_cast<std::size_t>(group.users());
}

at::Tensor part_of(const at::Tensor& gradients, const SumChunk& chunk) {
  return gradients.narrow(0, chunk.begin, chunk.size());
}

}  // namespace

GroupSums::GroupSums(const ParallelPlan& plan, DeviceId device, Gradients gradients)
    : plan_(plan), gradients_(std::move(gradients)) {
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    Part& part = parts_.emplace_back();
    GroupSum sum = plan_sum(plan, GroupId{g});
    part.role = role_of(sum, device);
    part.chunks = std::move(sum.chunks);
    for (std::size_t c = 0; c < part.chunks.size(); ++c)
      if (part.chunks[c].owner == part.role.place) part.own_chunk = static_cast<std::int32_t>(c);
  }
}

transport::Peer GroupSums::peer(const ParameterGroup& group, std::int32_t holder) const {
  return plan_.devices[group.holders[static_cast<std::size_t>(holder)].index()].node.value;
}

std::vector<Arrival> GroupSums::arrivals_of(const Action& action, at::ScalarType dtype) const {
  std::vector<Arrival> arrivals;
  const ParameterGroup& group = plan_.groups[action.group.index()];
  const Part& part = parts_[action.group.index()];
  const auto self = static_cast<std::size_t>(part.role.place);
  if (action.kind == ActionKind::reduce) {
    const SumChunk& chunk = part.chunks[static_cast<std::size_t>(part.own_chunk)];
    for (std::size_t h = 0; h < users_of(group); ++h)
      if (h != self)
        arrivals.push_back({{TagKind::reduce, sum_index(action.group, h, self)},
                            peer(group, static_cast<std::int32_t>(h)),
                            false,
                            {chunk.size()},
                            dtype});
  } else {
    for (const SumChunk& chunk : part.chunks)
      if (chunk.owner != part.role.place)
        arrivals.push_back({{TagKind::reduced,
                             sum_index(action.group, static_cast<std::size_t>(chunk.owner), self)},
                            peer(group, chunk.owner),
                            false,
                            {chunk.size()},
                            dtype});
  }
  return arrivals;
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

std::vector<Parcel> GroupSums::send(GroupId id) {
  const Part& part = parts_[id.index()];
  const at::Tensor& sum = add_up_uses(id);
  std::vector<Parcel> parcels;
  for (const SumChunk& chunk : part.chunks) {
    if (chunk.owner == part.role.place) continue;
    parcels.push_back({{TagKind::reduce, sum_index(id, static_cast<std::size_t>(part.role.place),
                                                   static_cast<std::size_t>(chunk.owner))},
                       peer(plan_.groups[id.index()], chunk.owner),
                       part_of(sum, chunk)});
  }
  return parcels;
}

at::Tensor GroupSums::own_chunk_of(GroupId id) {
  const Part& part = parts_[id.index()];
  return part_of(sum_of(id), part.chunks[static_cast<std::size_t>(part.own_chunk)]);
}

std::vector<Parcel> GroupSums::reduce(GroupId id, std::vector<at::Tensor> others) {
  const Part& part = parts_[id.index()];
  const ParameterGroup& group = plan_.groups[id.index()];
  if (!part.role.sends) add_up_uses(id);
  const at::Tensor own = own_chunk_of(id);
  const auto self = static_cast<std::size_t>(part.role.place);
  at::Tensor sum;
  std::size_t other = 0;
  for (std::size_t h = 0; h < users_of(group); ++h) {
    const at::Tensor next = h == self ? own : std::exchange(others[other++], {});
    if (!sum.defined()) {
      sum = next;
    } else {
      sum.add_(next);
    }
  }
  if (self > 0) own.copy_(sum);
  std::vector<Parcel> parcels;
  for (std::size_t h = 0; h < group.holders.size(); ++h)
    if (h != self)
      parcels.push_back({{TagKind::reduced, sum_index(id, self, h)},
                         peer(group, static_cast<std::int32_t>(h)),
                         own});
  return parcels;
}

GroupNorm GroupSums::measure(GroupId id) {
  const double squared = state::squared_norm(own_chunk_of(id));
  return {id, squared, std::isfinite(squared), parts_[id.index()].own_chunk};
}

void GroupSums::receive(GroupId id, std::vector<at::Tensor> sums) {
  const Part& part = parts_[id.index()];
  at::Tensor& gradients = sum_of(id);
  std::size_t sum = 0;
  for (const SumChunk& chunk : part.chunks)
    if (chunk.owner != part.role.place)
      part_of(gradients, chunk).copy_(std::exchange(sums[sum++], {}));
}

}  // namespace troupe::engine
