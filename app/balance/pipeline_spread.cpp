#include "app/balance/pipeline_spread.hpp"

#include <algorithm>

#include "balancer/replica_assignment.hpp"
#include "scheduler/distribute.hpp"

namespace troupe::app {

double busiest_stage_ms(const balancer::Workload& work, const scheduler::ModulePipeline& shape) {
  // Forward, and the halves of a backward that freezing leaves.
  const double encoder_passes = shape.freeze_encoder ? 1 : 3;
  const double llm_passes =
      1.0 + (shape.freeze_llm ? 0 : 1) + (shape.freeze_llm && shape.freeze_encoder ? 0 : 1);
  const double encoder_ms = work.encoder_ms * encoder_passes / shape.encoder_stages;
  const double llm_ms = work.llm_ms * llm_passes / shape.llm_stages;
  return shape.colocated ? encoder_ms + llm_ms : std::max(encoder_ms, llm_ms);
}

Result<std::vector<PipelineBatch>> spread_batch(std::span<const balancer::Workload> work,
                                                std::span<const std::int64_t> rows,
                                                std::span<const scheduler::ModulePipeline> shapes,
                                                std::int64_t microbatches) {
  const auto sum = balancer::total(work);
  std::vector<double> batch_ms, speeds;
  for (const auto& shape : shapes) {
    const double ms = busiest_stage_ms(sum, shape);
    batch_ms.push_back(ms > 0 ? ms : 1);
    speeds.push_back(1 / batch_ms.back());
  }
  const auto replicas = balancer::assign_replicas(work, speeds);
  if (!replicas.ok()) return replicas.error();
  const auto counts =
      scheduler::distribute(batch_ms, microbatches * static_cast<std::int64_t>(shapes.size()), 1);
  if (!counts.ok()) return counts.error();
  std::vector<PipelineBatch> batches(shapes.size());
  for (std::size_t p = 0; p < shapes.size(); ++p) {
    batches[p].microbatches = counts.value()[p];
    for (const auto sample : replicas.value()[p]) {
      batches[p].work.push_back(work[static_cast<std::size_t>(sample)]);
      batches[p].encoder_rows.push_back(rows[static_cast<std::size_t>(sample)]);
    }
  }
  return batches;
}

}  // namespace troupe::app
