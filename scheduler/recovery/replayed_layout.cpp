#include "scheduler/recovery/replayed_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/warm_up.hpp"

namespace troupe::scheduler {

Result<bool> ReplayedLayout::begin(const std::set<NodeId>& nodes) {
  end();
  present_ = job_.plan;
  if (std::ssize(nodes) == job_.cluster.nodes) {
    want_ = place_state(job_.plan, job_.parameters, job_.tolerance.dtype);
    if (auto set = set_layout(job_.plan); !set.ok()) return std::move(set).error();
  } else {
    auto next = without_lost(nodes, expected_quiet_ms(0, 0));
    if (!next.ok()) return std::move(next).error();
    if (!next.value()) {
      end();
      return false;
    }
    if (auto taken = take_up(*std::move(next.value())); !taken.ok())
      return std::move(taken).error();
  }
  last_step_ms_ = step_ms_;
  return true;
}

void ReplayedLayout::end() {
  present_ = {};
  placed_.clear();
  want_.clear();
  arriving_.reset();
  warming_.reset();
  working_ = 0;
  step_ms_ = last_step_ms_ = 0;
}

void ReplayedLayout::forget(NodeId lost) {
  for (StatePlacement* placement : {&placed_, &want_}) drop_holders(*placement, lost);
}

bool ReplayedLayout::is_orphaned() const {
  return std::any_of(placed_.begin(), placed_.end(),
                     [](const Shard& shard) { return shard.holders.empty(); });
}

ChangingJob ReplayedLayout::changing(double quiet_ms) const {
  ChangingJob made{
      base(),         job_.cluster, job_.templates,   job_.parameters, job_.global_batch,
      job_.tolerance, job_.spares,  present_.nodes(), placed_,         job_.network_bytes_per_ms,
      last_step_ms_,  quiet_ms};
  made.fits = [this](const ParallelPlan& plan) { return job_.fits(plan, {}); };
  made.fits_beside = [this](const std::map<DeviceSlot, Bytes>& arriving) {
    return room_beside(arriving);
  };
  return made;
}

Result<std::optional<NextLayout>> ReplayedLayout::without_lost(const std::set<NodeId>& nodes,
                                                               double quiet_ms) {
  if (nodes.empty()) return std::optional<NextLayout>();
  auto next = next_layout(changing(quiet_ms), nodes);
  if (next.ok()) return std::optional(std::move(next).value());
  if (next.error().code != Errc::infeasible) return std::move(next).error();
  return std::optional<NextLayout>();
}

Result<ReplayedLayout::Welcome> ReplayedLayout::with_newcomers(const std::set<NodeId>& nodes,
                                                               double quiet_ms, double now_ms,
                                                               NextLayout& next) {
  auto found = next_layout(changing(quiet_ms), nodes);
  if (!found.ok() && found.error().code != Errc::infeasible) return std::move(found).error();
  if (!found.ok() || !found.value().room.ok() || found.value().plan == base()) {
    give_up_warm_up();
    return Welcome::of_no_use;
  }
  next = std::move(found).value();
  return warm_up(next, now_ms) ? Welcome::warms_up : Welcome::all_there;
}

std::optional<WaitOutlook> ReplayedLayout::wait_outlook(const NextLayout& next,
                                                        const std::set<NodeId>& nodes, NodeId comes,
                                                        double ready_ms, double quiet_ms) const {
  return scheduler::wait_outlook(changing(quiet_ms), {next.plan, next.moves, next.want, nodes},
                                 comes, ready_ms);
}

Status ReplayedLayout::room_beside(const std::map<DeviceSlot, Bytes>& arriving) const {
  return job_.fits(present_, arriving);
}

void ReplayedLayout::give_up_warm_up() {
  if (!warming_) return;
  present_ = std::move(base_);
  warming_.reset();
  want_ = place_state(present_, job_.parameters, job_.tolerance.dtype);
  placed_ = want_;  // It only lets go.
}

bool ReplayedLayout::warm_up(const NextLayout& wanted, double now_ms) {
  const Dtype dtype = job_.tolerance.dtype;
  const auto bytes =
      warm_up_at_a_time(job_.network_bytes_per_ms, warming_ ? warming_->step_ms : last_step_ms_);
  if (!bytes) return false;
  WarmUpRequest request{base(), present_, wanted.plan, dtype, *bytes};
  WarmUp next = next_warm_up(request);
  if (next.arriving.empty() || !(warming_ || warm_up_pays(next, moves_ms(wanted.moves))))
    return false;
  request.at_a_time = Bytes{std::numeric_limits<std::int64_t>::max()};
  if (!job_.fits(next_warm_up(request).plan, {}).ok()) return false;
  StatePlacement want = place_state(next.plan, job_.parameters, dtype);
  const auto moves = plan_state_moves(job_.parameters, dtype, placed_, want);
  if (!moves.ok() || !job_.fits(next.plan, {}).ok() ||
      !room_beside(arriving_bytes(moves.value(), dtype)).ok())
    return false;
  if (!warming_) {
    base_ = present_;
    warming_ = ReplayedWarmUp{now_ms, last_step_ms_};
  }
  ++warming_->steps;
  warming_->bytes += moves.value().sent_bytes;
  present_ = std::move(next.plan);
  want_ = placed_;  // Until the step has ended, what comes is not there.
  arriving_ = std::move(want);
  return true;
}

Status ReplayedLayout::take_up(NextLayout next) {
  warming_.reset();
  arriving_.reset();
  want_ = std::move(next.want);
  return set_layout(std::move(next.plan));
}

void ReplayedLayout::step_ended() {
  last_step_ms_ = step_ms_;
  if (arriving_) placed_ = *std::exchange(arriving_, std::nullopt);
}

Status ReplayedLayout::set_layout(ParallelPlan plan) {
  present_ = std::move(plan);
  std::set<NodeId> working;
  for (const Stage& stage : present_.stages)
    for (const DeviceId device : stage.devices)
      working.insert(present_.devices[device.index()].node);
  working_ = working.size();
  auto step = step_of(present_);
  if (!step.ok()) return std::move(step).error();
  step_ms_ = step.value();
  return Done{};
}

/// Nodes are alike: what a step takes does not change with their numbers.
Result<double> ReplayedLayout::step_of(ParallelPlan plan) {
  std::map<NodeId, NodeId> ranks;
  for (const NodeId node : plan.nodes()) ranks.emplace(node, NodeId{ranks.size()});
  for (DeviceSlot& device : plan.devices) device.node = ranks.at(device.node);
  for (const auto& [known, ms] : steps_)
    if (known == plan) return ms;
  const auto step = job_.step_ms(plan);
  if (!step.ok()) return step;
  if (!(step.value() > 0))
    return Error{Errc::invalid_argument, "a step must take time", "step_ms", {}};
  steps_.emplace_back(std::move(plan), step.value());
  return step;
}

double ReplayedLayout::moves_ms(const StateMoves& moves) const {
  if (job_.network_bytes_per_ms <= 0) return 0;
  return copy_ms(moves, job_.tolerance.dtype, job_.network_bytes_per_ms);
}

double ReplayedLayout::state_bytes() const {
  double bytes = 0;
  for (const StateUnit& unit : state_units(job_.plan.model))
    bytes += static_cast<double>(unit.moved_bytes(job_.tolerance.dtype));
  return bytes;
}

std::vector<std::int64_t> ReplayedLayout::pipelines() const {
  std::vector<std::int64_t> sizes;
  std::set<NodeId> seen;
  for (std::size_t p = 0; p < present_.pipelines.size(); ++p) {
    const std::size_t before = seen.size();
    for (const StageId stage : present_.stages_of(PipelineId{p}))
      for (const DeviceId device : present_.at(stage).devices)
        seen.insert(present_.devices[device.index()].node);
    if (seen.size() > before) sizes.push_back(static_cast<std::int64_t>(seen.size() - before));
  }
  return sizes;
}

}  // namespace troupe::scheduler
