#include "app/replay/own_nodes.hpp"

#include <algorithm>
#include <map>

#include "engine/execution/stage_kinds.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/state/state_memory.hpp"
#include "scheduler/iteration/deliveries.hpp"
#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/template_layout.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::app {

Result<scheduler::ReplayedJob> replayed_job(const engine::JobSetup& setup,
                                            const std::vector<SampleShape>& samples, double pace) {
  const job::Job& job = setup.job;
  auto layout = engine::choose_layout(setup);
  if (!layout.ok()) return std::move(layout).error();
  scheduler::ReplayedJob made;
  made.plan = std::move(layout.value().plan);
  const Bytes memory = engine::memory_at_hand(job.cluster);
  if (auto fits = engine::check_state_memory(job, made.plan, memory); !fits.ok())
    return std::move(fits).error();
  made.cluster = {job.cluster.nodes, job.cluster.devices_per_node};
  made.templates = engine::templates_for_losses(setup, made.plan, samples);
  made.parameters = setup.parameters;
  made.global_batch = job.train.global_batch_size;
  made.tolerance = engine::tolerance_of(job);
  made.spares = job.cluster.spares;
  made.nodes_min = std::max(1, job.cluster.min_nodes);
  made.wait_for_nodes_ms = 1000 * job.recovery.wait_for_nodes_s;
  made.network_bytes_per_ms = setup.costs->options.speeds.network.gigabytes_per_s * 1e6;
  // Nodes of a trace come and go under any number: every one is taken to see all data.
  const auto judge = engine::training_judge(setup, *setup.costs, scheduler::of_no_layout(samples));
  made.step_ms = [judge, pace](const ParallelPlan& plan) -> Result<double> {
    auto step = judge(plan);
    if (!step.ok()) return std::move(step).error();
    return pace * step.value().step_ms;
  };
  made.fits = [&setup, memory](const ParallelPlan& plan,
                               const std::map<DeviceSlot, Bytes>& beside) -> Status {
    const job::Job& own = setup.job;
    auto run =
        engine::check_stage_kinds(plan, setup.modules(), own.scheduler.offloads("activations"));
    return run.ok() ? engine::check_state_memory(own, plan, memory, beside) : run;
  };
  return made;
}

Result<scheduler::RecoveryModel> restart_model(const scheduler::ReplayedJob& job,
                                               std::int64_t microbatches) {
  scheduler::RecoveryModel model;
  model.templates = job.templates;
  std::map<LayerId, std::int64_t> bytes;
  for (const auto& unit : scheduler::state_units(job.plan.model))
    bytes[unit.layer] += unit.moved_bytes(job.tolerance.dtype);
  for (const LayerId layer : scheduler::layers_of(job.plan.model))
    model.layer_bytes.push_back(bytes[layer]);
  model.global_batch = job.global_batch;
  // The divisor of the batch next below what a microbatch has on the job's own layout.
  const auto parts = microbatches * std::ssize(job.plan.pipelines);
  model.microbatch_size = std::max<std::int64_t>(1, job.global_batch / parts);
  while (job.global_batch % model.microbatch_size != 0) --model.microbatch_size;
  // Templates know no messages and no sums, and no pace.
  const double rate = scheduler::microbatches_per_ms(job.plan, job.templates);
  if (rate <= 0) return model;
  const auto step = job.step_ms(job.plan);
  if (!step.ok()) return step.error();
  const double by_templates =
      static_cast<double>(model.global_batch / model.microbatch_size) / rate;
  for (auto& made : model.templates.templates) made.microbatch_ms *= step.value() / by_templates;
  return model;
}

}  // namespace troupe::app
