#include "engine/layout/choose_layout.hpp"

#include <memory>
#include <utility>

#include "engine/iteration/stated_costs.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_data.hpp"
#include "engine/profiling/profile_speeds.hpp"
#include "engine/setup/source_nodes.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/schedules/registry.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/recovery/first_layout.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::engine {

scheduler::AutoLayoutRequest layout_request(const JobSetup& setup,
                                            const scheduler::CostModel& model,
                                            const scheduler::DeviceSpeeds& speeds) {
  const job::Job& job = setup.job;
  scheduler::AutoLayoutRequest request;
  request.model = &model;
  request.cluster = {working_nodes(job.cluster), job.cluster.devices_per_node};
  request.spares = job.cluster.spares;
  request.fits_spares = [job](const ParallelPlan& plan) {
    return check_state_memory(job, plan, memory_at_hand(job.cluster));
  };
  request.device_memory = memory_at_hand(job.cluster);
  for (const auto& [name, pins] : job.parallel.modules)
    request.pins[name] = {pins.tp, pins.cp, pins.pp, pins.dp};
  request.stage_kinds = kinds_by_module(setup.model, setup.modules());
  request.global_batch = job.train.global_batch_size;
  request.microbatches = job.train.microbatches;
  request.schedule = schedules::find_schedule(job.scheduler.schedule);
  request.boundary = pinned_route(job.scheduler);
  request.max_in_flight = job.scheduler.max_in_flight;
  request.offload_encoders = job.scheduler.offloads("activations");
  request.fault_tolerance = job.cluster.fault_tolerance;
  request.prediction = prediction_of(setup, speeds);
  request.seed = job.job.seed;
  return request;
}

SimulatedTraining training_on_paper(const JobSetup& setup, PlanningCosts costs,
                                    const ParallelPlan& plan) {
  return {plan, microbatching_options(setup),
          std::make_shared<const PlanningCosts>(std::move(costs))};
}

scheduler::LayoutJudge training_judge(const JobSetup& setup, const PlanningCosts& costs,
                                      std::vector<SampleShape> samples) {
  return [&setup, costs, samples = std::move(samples)](
             const ParallelPlan& plan) -> Result<scheduler::PredictedStep> {
    auto training = training_on_paper(setup, costs, plan);
    scheduler::PredictedStep sum;
    for (std::uint64_t batch = 0; batch < kJudgedBatches; ++batch) {
      auto step = training.step(scheduler::draw_batch(samples, setup.job.train.global_batch_size,
                                                      setup.job.job.seed + batch));
      if (!step.ok()) return std::move(step).error();
      scheduler::add_step(step.value().step, sum);
    }
    scheduler::divide_steps(sum, static_cast<double>(kJudgedBatches));
    return sum;
  };
}

bool needs_judge(const job::Job& job) {
  return job.balancer.policy != "in-order" || job.balancer.exchange != "off";
}

namespace {

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

}  // namespace

std::int32_t working_nodes(const job::Cluster& cluster) { return cluster.nodes - cluster.spares; }

scheduler::IdleDevices idle_of(const job::Job& job) {
  return job.debug.layouts.empty() && job.cluster.spares == 0 ? scheduler::IdleDevices::refused
                                                              : scheduler::IdleDevices::left_out;
}

scheduler::Tolerance tolerance_of(const job::Job& job) {
  return tolerance_of(job, DeviceRooms{memory_at_hand(job.cluster)});
}

scheduler::Tolerance tolerance_of(const job::Job& job, const DeviceRooms& rooms) {
  const auto kept_of = [](Bytes memory) {
    return Bytes{
        static_cast<std::int64_t>(scheduler::kSpareShare * static_cast<double>(memory.count()))};
  };
  scheduler::Tolerance tolerance{job.cluster.fault_tolerance, job.train.dtype, job.cluster.spares,
                                 kept_of(rooms.usual)};
  for (const auto& [node, memory] : rooms.own) tolerance.own_spare_rooms[node] = kept_of(memory);
  return tolerance;
}

Result<std::vector<ParallelPlan>> later_layouts(const JobSetup& setup) {
  const job::Cluster& cluster = setup.job.cluster;
  std::vector<ParallelPlan> plans;
  for (const job::LaterLayout& later : setup.job.debug.layouts) {
    auto plan = scheduler::place_by_hand(setup.model, later.layout,
                                         {cluster.nodes, cluster.devices_per_node},
                                         scheduler::IdleDevices::left_out, tolerance_of(setup.job));
    const std::string name = "debug.layouts[" + std::to_string(plans.size()) + "]";
    if (!plan.ok()) {
      Error error = std::move(plan).error();
      for (std::string* text : {&error.where, &error.message, &error.fix}) {
        replace_all(*text, "[[parallel.", "[[debug.layouts.");
        replace_all(*text, "parallel.", name + ".");
      }
      return error;
    }
    if (auto runs = check_executable(plan.value()); !runs.ok()) {
      Error error = runs.error();
      error.where = name;
      return error;
    }
    if (auto seen = check_sources(setup.job, plan.value().nodes()); !seen.ok()) {
      Error error = seen.error();
      error.where = name;
      return error;
    }
    plans.push_back(std::move(plan).value());
  }
  return plans;
}

Status check_executable(const ParallelPlan& plan) {
  for (const Stage& stage : plan.stages) {
    if (stage.grid.ranks() == 1) continue;
    const ModuleSpec& module = plan.model.at(stage.runs.front().module);
    return Error{Errc::unavailable,
                 "a stage of " + module.name + " is on " + std::to_string(stage.grid.ranks()) +
                     " devices (tp " + std::to_string(stage.grid.tp) + ", cp " +
                     std::to_string(stage.grid.cp) +
                     "): such layouts are planned and simulated, but not trained yet",
                 "parallel",
                 "give each stage one device to train; `troupe plan` shows such layouts"};
  }
  return Done{};
}

Result<ParallelPlan> make_parallel_plan(const JobSetup& setup) {
  auto layout = choose_layout(setup);
  if (!layout.ok()) return std::move(layout).error();
  return std::move(layout).value().plan;
}

scheduler::TemplateSet templates_for_losses(const JobSetup& setup, const ParallelPlan& plan,
                                            std::vector<SampleShape> samples) {
  const job::Job& job = setup.job;
  if (job.cluster.nodes < 2 || !setup.costs || samples.empty()) return {};
  auto request = layout_request(setup, setup.costs->model, setup.costs->options.speeds);
  request.samples = std::move(samples);
  std::int32_t llm_replicas = 0;  // Among them a batch is dealt.
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    llm_replicas += plan.is_llm(ReplicaId{r}) ? 1 : 0;
  auto made = scheduler::layout_templates(request, setup.model, llm_replicas, job.cluster.nodes, 0);
  auto set = made.ok() ? std::move(made).value() : scheduler::TemplateSet{};
  if (!scheduler::has_groups_of_their_own(plan)) return set;
  auto groups = scheduler::group_templates(request, plan, job.cluster.nodes);
  if (groups.ok()) set.groups = std::move(groups).value();
  return set;
}

Result<scheduler::TemplateSet> draw_templates(const JobSetup& setup, const ParallelPlan& plan) {
  auto samples = draw_shapes(setup, kLayoutSamples, setup.job.job.seed);
  if (!samples.ok()) return std::move(samples).error();
  return templates_for_losses(setup, plan, std::move(samples).value());
}

Result<ParallelPlan> place_own_layout(const JobSetup& setup) {
  const job::Job& job = setup.job;
  const std::int32_t devices = job.cluster.devices_per_node;
  HandLayout layout = job.parallel.layout;
  if (layout.empty()) {
    auto made = scheduler::default_layout(setup.model, {working_nodes(job.cluster), devices});
    if (!made.ok()) return std::move(made).error();
    layout = std::move(made).value();
  }
  scheduler::Tolerance tolerance = tolerance_of(job);
  const auto place = [&] {
    return scheduler::place_by_hand(setup.model, layout, {job.cluster.nodes, devices}, idle_of(job),
                                    tolerance);
  };
  auto plan = place();
  if (!plan.ok() || tolerance.spares == 0 ||
      check_state_memory(job, plan.value(), memory_at_hand(job.cluster)).ok())
    return plan;
  tolerance.spares = 0;
  return place();
}

Result<JobLayout> choose_layout(const JobSetup& setup) {
  const job::Job& job = setup.job;
  const scheduler::ClusterShape cluster{job.cluster.nodes, job.cluster.devices_per_node};
  const bool one = working_nodes(job.cluster) * cluster.devices_per_node == 1 &&
                   job.parallel.modules.empty() &&
                   kinds_by_module(setup.model, setup.modules()).empty();
  if (job.parallel.mode == job::LayoutMode::manual || one) {
    auto plan = place_own_layout(setup);
    if (!plan.ok()) return std::move(plan).error();
    if (auto runs = check_executable(plan.value()); !runs.ok()) return runs.error();
    if (auto seen = check_sources(job, plan.value().nodes()); !seen.ok()) return seen.error();
    return JobLayout{std::move(plan).value(), {}, 0};
  }
  // Before the search, which would say that memory does not do.
  if (auto seen = check_sources(job, working_nodes(job.cluster)); !seen.ok()) return seen.error();
  auto costs = setup.costs;
  if (!costs) {
    auto profile = profile_at_hand(setup);
    if (!profile.ok()) return std::move(profile).error();
    auto made = planning_costs(setup, profile.value(), memory_at_hand(job.cluster));
    if (!made.ok()) return std::move(made).error();
    costs = std::move(made).value();
  }
  auto request = layout_request(setup, costs->model, costs->options.speeds);
  auto samples = draw_shapes(setup, kLayoutSamples, job.job.seed);
  if (!samples.ok()) return std::move(samples).error();
  request.samples = std::move(samples).value();
  if (needs_judge(job)) request.judge = training_judge(setup, *costs, request.samples);
  auto chosen = scheduler::first_layout(request);
  if (!chosen.ok()) return std::move(chosen).error();
  if (auto seen = check_sources(job, chosen.value().plan.nodes()); !seen.ok()) return seen.error();
  return JobLayout{std::move(chosen.value().plan), std::move(chosen.value().reasons),
                   chosen.value().predicted.step_ms};
}

}  // namespace troupe::engine
