#include "scheduler/recovery/wait_choice.hpp"

#include <algorithm>
#include <cstddef>

#include "scheduler/recovery/warm_up.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::size_t kJoinsKept = 8;
constexpr double kJoinMargin = 1.25;

/// Steps that end before who is ready enters: half of the one under way, on the mean, and the one
/// that is planned already.
constexpr double kStepsBeforeEntry = 1.5;

double time_until(double end_ms, double begin_ms) { return std::max(0.0, end_ms - begin_ms); }

double trained_going_on(const WaitOutlook& x) {
  const double enters_ms = std::max(x.ready_ms, x.copy_without_ms) + x.warm_ms;
  return x.without_per_ms * time_until(std::min(enters_ms, x.horizon_ms), x.copy_without_ms) +
         x.with_per_ms * time_until(x.horizon_ms, enters_ms + x.stall_ms);
}

double trained_waiting(const WaitOutlook& x) {
  return x.with_per_ms * time_until(x.horizon_ms, x.ready_ms + x.copy_with_ms);
}

/// What there is to train at most.
double most(const WaitOutlook& x) {
  return std::max(x.without_per_ms, x.with_per_ms) * x.horizon_ms;
}

bool has_stage(const ParallelPlan& plan, NodeId node) {
  return std::ranges::any_of(plan.stages, [&](const Stage& stage) {
    return std::ranges::any_of(
        stage.devices, [&](DeviceId device) { return plan.devices[device.index()].node == node; });
  });
}

double change_ms(const ChangingJob& job, const StateMoves& moves) {
  return copy_ms(moves, job.tolerance.dtype, job.network_bytes_per_ms) + kTurnoverMs;
}

/// What it costs the others that a node enters the layout of `job` as `next` has it.
struct Entry {
  double warm_ms = 0;
  double stall_ms = 0;
};

Entry entry_of(const ChangingJob& job, const NextLayout& next) {
  const Dtype dtype = job.tolerance.dtype;
  const double all_wait_ms = change_ms(job, next.moves);
  const auto bytes = warm_up_at_a_time(job.network_bytes_per_ms, job.step_ms);
  if (!bytes) return {0, all_wait_ms};
  const WarmUp first = next_warm_up({job.plan, job.plan, next.plan, dtype, *bytes});
  if (first.arriving.empty() || !warm_up_pays(first, all_wait_ms - kTurnoverMs))
    return {0, all_wait_ms};
  const auto steps = static_cast<double>(first.layouts_left + 1);
  return {steps * job.step_ms, (steps + 1) * kTurnoverMs};
}

/// What no more nodes than before may train at most, times what these trained. Templates lay them
/// out, as they did then; a layout that losses left behind may have been a worse one.
constexpr double kFasterAtMost = 1.25;

/// So often all state may go through one device at most where a node enters, also while others
/// train: then half of the network is for that.
constexpr double kCopiesAtMost = 3;

/// For how long all state takes the network, once.
double all_state_ms(const ChangingJob& job) {
  std::int64_t bytes = 0;
  for (const StateUnit& unit : state_units(job.plan.model))
    bytes += unit.moved_bytes(job.tolerance.dtype);
  return static_cast<double>(bytes) / job.network_bytes_per_ms;
}

/// The outlook without a search, where waiting is plainly worse: also if who comes made the job
/// much faster, and entered as late as can be, with all waiting for all of the state. None: waiting
/// may be better, or there may be more nodes than before. `known`: what it is to go on.
std::optional<WaitOutlook> plain_outlook(const ChangingJob& job, const GoingOn& going_on,
                                         const WaitOutlook& known, double step_ms) {
  const std::size_t before = job.plan.nodes().size();
  if (job.spares > 0 || going_on.nodes.size() + 1 > before) return std::nullopt;
  const double state_ms = all_state_ms(job);
  WaitOutlook plain = known;
  plain.with_per_ms =
      std::max(known.without_per_ms, static_cast<double>(job.global_batch) / job.step_ms);
  WaitOutlook best = plain;  // For waiting.
  best.with_per_ms *= kFasterAtMost;
  best.warm_ms = (kStepsBeforeEntry + 1) * step_ms;
  best.stall_ms = kCopiesAtMost * state_ms + 2 * kTurnoverMs;
  if (waiting_pays(best)) return std::nullopt;
  plain.stall_ms = state_ms / static_cast<double>(before) + kTurnoverMs;  // Its share.
  plain.copy_with_ms = plain.stall_ms;
  return plain;
}

/// The job once it has gone on, and a step of it takes so long.
ChangingJob gone_on(const ChangingJob& job, const GoingOn& going_on, double step_ms) {
  return {going_on.plan,    job.cluster,
          job.templates,    job.parameters,
          job.global_batch, job.tolerance,
          job.spares,       going_on.plan.nodes(),
          going_on.want,    job.network_bytes_per_ms,
          step_ms,          job.quiet_ms,
          job.fits,         job.fits_beside};
}

}  // namespace

double lost_going_on(const WaitOutlook& outlook) {
  return most(outlook) - trained_going_on(outlook);
}

double lost_waiting(const WaitOutlook& outlook) { return most(outlook) - trained_waiting(outlook); }

bool waiting_pays(const WaitOutlook& outlook) {
  return trained_waiting(outlook) > trained_going_on(outlook);
}

std::optional<WaitOutlook> wait_outlook(const ChangingJob& job, const GoingOn& going_on,
                                        NodeId comes, double ready_ms) {
  if (job.network_bytes_per_ms <= 0) return std::nullopt;
  WaitOutlook outlook;
  outlook.without_per_ms = samples_per_ms(job, going_on.plan);
  if (outlook.without_per_ms <= 0) return std::nullopt;
  const double step_ms = static_cast<double>(job.global_batch) / outlook.without_per_ms;
  outlook.ready_ms = ready_ms;
  outlook.copy_without_ms = change_ms(job, going_on.moves);
  outlook.horizon_ms = job.quiet_ms;
  // Before the layout is up nothing is planned on it: who is ready by then enters at once.
  const bool amid_steps = ready_ms > outlook.copy_without_ms;
  outlook.warm_ms = amid_steps ? kStepsBeforeEntry * step_ms : 0;
  if (auto plain = plain_outlook(job, going_on, outlook, step_ms)) return plain;
  std::set<NodeId> nodes = going_on.nodes;
  nodes.insert(comes);
  const auto with = next_layout(job, nodes);
  if (!with.ok() || !has_stage(with.value().plan, comes)) return std::nullopt;
  const ChangingJob later = gone_on(job, going_on, step_ms);
  const auto grown = next_layout(later, nodes);
  if (!grown.ok()) return std::nullopt;
  const Entry entry = entry_of(later, grown.value());
  outlook.with_per_ms = samples_per_ms(job, with.value().plan);
  outlook.copy_with_ms = change_ms(job, with.value().moves);
  outlook.warm_ms += entry.warm_ms;
  outlook.stall_ms = entry.stall_ms;
  return outlook;
}

void JoinTimes::add(double ms) {
  last_ms_.push_back(ms);
  if (last_ms_.size() > kJoinsKept) last_ms_.pop_front();
}

std::optional<double> JoinTimes::ready_in_ms(double elapsed_ms) const {
  if (last_ms_.empty()) return std::nullopt;
  const double bound_ms = kJoinMargin * *std::max_element(last_ms_.begin(), last_ms_.end());
  if (elapsed_ms >= bound_ms) return std::nullopt;
  return bound_ms - elapsed_ms;
}

}  // namespace troupe::scheduler
