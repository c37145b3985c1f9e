#include "app/plan_step.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "app/planning_text.hpp"
#include "app/progress.hpp"
#include "engine/layout/choose_layout.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/layout_score.hpp"

namespace troupe::app {

namespace {

/// The same samples and costs under another batch or on other machines.
std::unique_ptr<Planning> copy(const Planning& planning) {
  auto other = std::make_unique<Planning>();
  other->setup = planning.setup;
  other->model = planning.model;
  other->request = planning.request;
  other->request.model = &other->model;
  other->device = planning.device;
  other->costs = planning.costs;
  other->by_hand = planning.by_hand;
  return other;
}

std::unique_ptr<Planning> with_microbatches(const Planning& planning, std::int64_t count) {
  auto other = copy(planning);
  other->setup.job.train.microbatches = other->request.microbatches = count;
  return other;
}

std::unique_ptr<Planning> with_schedule(const Planning& planning, const std::string& name) {
  auto other = copy(planning);
  other->setup.job.scheduler.schedule = name;
  other->request.schedule = name;
  return other;
}

std::unique_ptr<Planning> with_cluster(const Planning& planning, scheduler::ClusterShape shape) {
  auto other = copy(planning);
  other->request.cluster = shape;
  return other;
}

/// Steps of a layout, and the one that stands for all. Errors: as `SimulatedTraining::step`.
Result<PlannedStep> step_on(const Planning& planning, scheduler::AutoLayout layout) {
  PlannedStep planned;
  planned.layout = std::move(layout);
  auto training = training_on_paper(planning, planned.layout);
  scheduler::SimulationOptions recorded;
  recorded.record_timeline = true;
  std::vector<PredictedBatch> batches;
  double sum_ms = 0;
  scheduler::PredictedStep all;  // For the largest memory.
  for (std::uint64_t seed = 0; seed < engine::kJudgedBatches; ++seed) {
    auto batch = training.step(draw_batch(planning, planning.request.seed + seed), recorded);
    if (!batch.ok()) return std::move(batch).error();
    sum_ms += batch.value().step.step_ms;
    scheduler::add_step(batch.value().step, all);
    batches.push_back(std::move(batch).value());
  }
  const auto by_time = [](const auto& a, const auto& b) { return a.step.step_ms < b.step.step_ms; };
  const auto [least, most] = std::minmax_element(batches.begin(), batches.end(), by_time);
  planned.least_ms = least->step.step_ms;
  planned.most_ms = most->step.step_ms;
  const double mean_ms = planned.mean_ms = sum_ms / static_cast<double>(batches.size());
  auto& nearest =
      *std::min_element(batches.begin(), batches.end(), [&](const auto& a, const auto& b) {
        return std::abs(a.step.step_ms - mean_ms) < std::abs(b.step.step_ms - mean_ms);
      });
  planned.batch = std::move(nearest);
  planned.layout.predicted = {};
  scheduler::add_step(planned.batch.step, planned.layout.predicted);
  planned.layout.predicted.peak_memory_bytes = std::move(all.peak_memory_bytes);
  planned.layout.predicted.peak_host_bytes = std::move(all.peak_host_bytes);
  return planned;
}

bool fits(const Planning& planning, const PlannedStep& planned) {
  const auto& peaks = planned.layout.predicted.peak_memory_bytes;
  const auto memory = static_cast<double>(planning.request.device_memory.count());
  return memory == 0 || *std::max_element(peaks.begin(), peaks.end()) <= memory;
}

std::int32_t devices_of(const scheduler::AutoLayout& layout) {
  return static_cast<std::int32_t>(layout.plan.devices.size());
}

/// The mean step, and the one that stands for all.
struct StepTimes {
  double mean_ms = INFINITY;
  double shown_ms = INFINITY;
};

StepTimes times_of(const PlannedStep& planned) {
  return {planned.mean_ms, planned.layout.predicted.step_ms};
}

/// Where `count` microbatches can be made and fit; infinite elsewhere.
StepTimes times_with(const Planning& planning, std::int64_t count) {
  const auto other = with_microbatches(planning, count);
  const auto planned = plan_step(*other);
  if (!planned.ok() || !fits(*other, planned.value())) return {};
  if (count * llm_replicas(planned.value().layout.plan) > planning.request.global_batch)
    return {};  // Fewer would be made.
  return times_of(planned.value());
}

bool pays(const StepTimes& then, const StepTimes& now) {
  return then.mean_ms <= (1 - kWorthSaving) * now.mean_ms &&
         then.shown_ms <= (1 - kWorthSaving) * now.shown_ms;
}

std::string percent_less(double now, double then) {
  return std::to_string(std::lround(100 * (1 - then / now))) + " % less";
}

/// A key of the job file with another value, and what it brings.
Suggestion instead(const std::string& key, const std::string& value, const StepTimes& now,
                   const StepTimes& then) {
  return {key, value, then.shown_ms,
          key + "=" + value + " takes " + time_text(then.shown_ms) + " per step instead of " +
              time_text(now.shown_ms) + ", " + percent_less(now.shown_ms, then.shown_ms)};
}

void suggest_microbatches(const Planning& planning, const StepTimes& now_ms,
                          std::vector<Suggestion>& found) {
  const auto now = planning.request.microbatches;
  std::int64_t best = now;
  StepTimes best_ms = now_ms;
  // Goes on as long as it pays.
  const auto follow = [&](const std::function<std::int64_t(std::int64_t)>& next) {
    for (auto count = next(best); count >= 1 && count <= planning.request.global_batch;
         count = next(count)) {
      const StepTimes ms = times_with(planning, count);
      if (ms.mean_ms >= best_ms.mean_ms) return;
      best = count;
      best_ms = ms;
    }
  };
  follow([](auto count) { return 2 * count; });
  if (best == now) follow([](auto count) { return count / 2; });
  if (pays(best_ms, now_ms))
    found.push_back(instead("train.microbatches", std::to_string(best), now_ms, best_ms));
}

/// Whether another schedule may have layouts that the job's own cannot use: encoders and llm on the
/// same devices, where they take turns.
bool has_layouts_of_its_own(const Planning& planning, const Planning& other) {
  return !planning.by_hand && scheduler::has_phases(other.request.schedule) &&
         !scheduler::has_phases(planning.request.schedule);
}

/// Built-in schedules in place of the job's, each on the layout that is there, or planned anew
/// where it may have others; then the fastest on the layout that is planned for it.
void suggest_schedule(const Planning& planning, const PlannedStep& planned,
                      std::vector<Suggestion>& found) {
  const StepTimes now_ms = times_of(planned);
  std::string best;
  std::optional<PlannedStep> best_step;  // Where it is planned already.
  double best_ms = now_ms.mean_ms;
  for (const auto& name : scheduler::schedule_names()) {
    if (name == planning.request.schedule.name) continue;
    const auto other = with_schedule(planning, name);
    if (!engine::setup_problems(other->setup.job).empty()) continue;
    const bool anew = has_layouts_of_its_own(planning, *other);
    auto step = anew ? plan_step(*other) : step_on(*other, planned.layout);
    if (!step.ok() || !fits(planning, step.value()) || step.value().mean_ms >= best_ms) continue;
    best = name;
    best_ms = step.value().mean_ms;
    best_step.reset();
    if (anew) best_step = std::move(step).value();
  }
  if (best.empty()) return;
  if (!best_step) {
    const auto other = with_schedule(planning, best);
    auto then = plan_step(*other);
    if (!then.ok() || !fits(*other, then.value())) return;
    best_step = std::move(then).value();
  }
  if (!pays(times_of(*best_step), now_ms)) return;
  found.push_back(instead("scheduler.schedule", best, now_ms, times_of(*best_step)));
  const auto placement = scheduler::encoder_placement(best_step->layout.plan);
  if (placement && placement != scheduler::encoder_placement(planned.layout.plan))
    found.back().text += ", with " + scheduler::describe(*placement);
}

/// `devices` of a cluster, a node's first.
scheduler::ClusterShape part_of(const scheduler::ClusterShape& cluster, std::int32_t devices) {
  const auto on_node = std::min(devices, cluster.devices_per_node);
  return {devices / on_node, on_node};
}

void suggest_devices(const Planning& planning, const PlannedStep& planned,
                     std::vector<Suggestion>& found) {
  const auto& cluster = planning.request.cluster;
  const auto used = devices_of(planned.layout);
  std::int32_t enough = 0;
  StepTimes enough_ms;
  for (std::int32_t devices = 1; devices < used; devices *= 2) {
    const auto part = part_of(cluster, devices);
    if (part.devices() != devices) continue;  // Not whole nodes.
    const auto other = with_cluster(planning, part);
    const auto on_part = plan_step(*other);
    if (!on_part.ok() || !fits(*other, on_part.value())) continue;
    const StepTimes ms = times_of(on_part.value());
    if (enough > 0 && enough_ms.mean_ms < kWorthDoubling * ms.mean_ms) break;
    enough = devices;
    enough_ms = ms;
  }
  if (enough == 0 || used * planned.mean_ms < kDeviceTimeWasted * enough * enough_ms.mean_ms)
    return;
  const auto part = part_of(cluster, enough);
  const auto value = std::to_string(part.nodes) + "x" + std::to_string(part.devices_per_node) +
                     "x" + planning.device;
  char times[32];
  std::snprintf(times, sizeof times, "%.1f", enough_ms.shown_ms / planned.layout.predicted.step_ms);
  found.push_back({"--cluster", value, enough_ms.shown_ms,
                   std::to_string(enough) + (enough == 1 ? " device" : " devices") + " would do: " +
                       time_text(enough_ms.shown_ms) + " per step (--cluster " + value + "); the " +
                       std::to_string(used) + " of this plan are " + times + " times as fast"});
}

}  // namespace

Result<PlannedStep> plan_step(const Planning& planning) {
  auto layout = make_layout(planning);
  if (!layout.ok()) return std::move(layout).error();
  return step_on(planning, std::move(layout).value());
}

std::vector<Suggestion> suggestions(const Planning& planning, const PlannedStep& planned) {
  std::vector<Suggestion> found;
  suggest_microbatches(planning, times_of(planned), found);
  suggest_schedule(planning, planned, found);
  if (planning.request.planned_only) suggest_devices(planning, planned, found);
  return found;
}

}  // namespace troupe::app
