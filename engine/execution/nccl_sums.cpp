#include "engine/execution/nccl_sums.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::engine {

using transport::NcclGroupOptions;

namespace {

transport::Scalar scalar_of(at::ScalarType type) {
  return type == at::kDouble ? transport::Scalar::fp64 : transport::Scalar::fp32;
}

std::vector<DeviceSlot> slots_of(const ParallelPlan& plan, const ParameterGroup& group) {
  std::vector<DeviceSlot> slots;
  for (const DeviceId holder : group.holders) slots.push_back(plan.devices[holder.index()]);
  return slots;
}

/// Lengths of the sums of all groups that have these holders.
std::vector<std::size_t> lengths_of(const ParallelPlan& plan,
                                    const std::vector<DeviceId>& holders) {
  std::vector<std::size_t> lengths;
  for (const ParameterGroup& group : plan.groups)
    if (is_by_nccl(group.order) && group.holders == holders)
      lengths.push_back(static_cast<std::size_t>(group.elements));
  return lengths;
}

bool has_all(const std::vector<DeviceSlot>& slots, const std::vector<DeviceSlot>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const DeviceSlot& slot) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  });
}

}  // namespace

NcclSums::NcclSums(std::shared_ptr<NcclDevice> device) : device_(std::move(device)) {}

NcclSums::~NcclSums() = default;

Status NcclSums::open_circle(const ParallelPlan& plan, GroupId first, DeviceId device,
                             EpochNumber generation, std::vector<Circle>& old) {
  const ParameterGroup& group = plan.groups[first.index()];
  NcclGroupOptions options;
  options.name = "gradients of " + group.name;
  options.generation = generation;
  // Of the first group that these holders share: the same at all of them, and no other circle's.
  options.group_id = static_cast<std::uint32_t>(first.index()) + 1;
  options.sums = group.order == SumOrder::nccl ? transport::NcclSums::as_nccl_likes
                                               : transport::NcclSums::in_rank_order;
  for (const DeviceId holder : group.holders) {
    if (holder == device) options.rank = static_cast<std::int32_t>(options.members.size());
    options.members.push_back(plan.devices[holder.index()].node.value);
  }
  auto holders = slots_of(plan, group);
  const auto before = std::find_if(old.begin(), old.end(), [&](const Circle& circle) {
    return circle.seat.group != nullptr && has_all(circle.holders, holders);
  });
  auto made = device_->open(before != old.end() ? std::move(before->seat) : NcclSeat{},
                            std::move(options), "cluster.sums");
  if (!made.ok()) return made.error();
  {
    const std::lock_guard lock(mutex_);
    circles_.push_back({std::move(holders), std::move(made).value()});
    // Who was lost meanwhile would be missed: its group was not there to hear of it.
    for (const auto& [peer, why] : lost_) circles_.back().seat.group->lose(peer, why);
  }
  return warm_up(lengths_of(plan, group.holders));
}

/// Of the circle that was opened last. It is waited for unlocked, so that it can be told of a lost
/// node; no other thread lets go of a circle.
Status NcclSums::warm_up(std::vector<std::size_t> lengths) {
  const auto deadline = transport::within(device_->options().opening / 3);
  transport::NcclGroup* group = nullptr;
  std::optional<transport::Operation> connected;
  {
    const std::lock_guard lock(mutex_);
    group = circles_.back().seat.group.get();
    connected = group->begin_warm_up(std::move(lengths), deadline);
  }
  const Status own = connected->wait(deadline + transport::kNcclGrace);
  return group->compare(own, compare_end(deadline, device_->options()));
}

Status NcclSums::open(const ParallelPlan& plan, DeviceId device, EpochNumber generation) {
  std::vector<Circle> old;
  {
    const std::lock_guard lock(mutex_);
    old.swap(circles_);
    lost_.clear();
  }
  running_.clear();
  circle_of_.clear();
  // In the order of the plan, as at all other devices: no two of them wait for each other.
  std::map<std::vector<DeviceId>, std::size_t> known;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const auto& holders = plan.groups[g].holders;
    if (!is_by_nccl(plan.groups[g].order) ||
        std::find(holders.begin(), holders.end(), device) == holders.end())
      continue;
    const auto [circle, is_new] = known.try_emplace(holders, known.size());
    circle_of_[GroupId{g}] = circle->second;
    if (!is_new) continue;
    if (auto opened = open_circle(plan, GroupId{g}, device, generation, old); !opened.ok())
      return opened;
  }
  return Done{};
}

void NcclSums::lose(transport::Peer peer, const Error& why) {
  const std::lock_guard lock(mutex_);
  lost_.insert_or_assign(peer, why);
  for (const Circle& circle : circles_) circle.seat.group->lose(peer, why);
}

void NcclSums::enter(GroupId group, at::Tensor gradients, std::function<void()> on_done) {
  const auto owner = std::make_shared<at::Tensor>(std::move(gradients));
  std::optional<transport::Operation> sum;
  {
    const std::lock_guard lock(mutex_);
    sum = circles_[circle_of_.at(group)].seat.group->begin_all_reduce(
        {owner->mutable_data_ptr(), owner->nbytes(), owner}, scalar_of(owner->scalar_type()),
        transport::within(device_->options().call));
  }
  running_.insert_or_assign(group, *sum);
  sum->on_done([on_done = std::move(on_done)](const Status&) { on_done(); });
}

Result<bool> NcclSums::has_ended(GroupId group) {
  const auto sum = running_.find(group);
  if (sum == running_.end() || !sum->second.done()) return false;
  const Status status = sum->second.wait(transport::within(std::chrono::milliseconds(0)));
  if (!status.ok()) return status.error();
  running_.erase(sum);
  return true;
}

void NcclSums::give_up() {
  const bool is_idle = std::all_of(running_.begin(), running_.end(),
                                   [](const auto& entry) { return entry.second.done(); });
  running_.clear();
  if (is_idle) return;
  const std::lock_guard lock(mutex_);
  for (const Circle& circle : circles_)
    circle.seat.group->end({Errc::cancelled, "its step was given up", {}, {}});
}

}  // namespace troupe::engine
