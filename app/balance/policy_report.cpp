#include "app/balance/policy_report.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "scheduler/schedules.hpp"
#include "scheduler/step_estimator.hpp"

namespace troupe::app {

namespace {

using balancer::MicrobatchPlan;
using balancer::Workload;

// Most rows whose encoder microbatch is done while their llm microbatch is a later one.
std::int64_t rows_held(const MicrobatchPlan& plan, const std::vector<std::int64_t>& rows) {
  std::vector<std::size_t> encoded(rows.size());
  std::vector<std::int64_t> change(plan.encoder.size() + plan.llm.size() + 1);
  for (std::size_t m = 0; m < plan.encoder.size(); ++m)
    for (const auto sample : plan.encoder[m]) encoded[static_cast<std::size_t>(sample)] = m;
  for (std::size_t m = 0; m < plan.llm.size(); ++m)
    for (const auto sample : plan.llm[m]) {
      const auto s = static_cast<std::size_t>(sample);
      if (m <= encoded[s]) continue;
      change[encoded[s]] += rows[s];
      change[m] -= rows[s];
    }
  std::int64_t held = 0, most = 0;
  for (const auto rows_more : change) most = std::max(most, held += rows_more);
  return most;
}

std::vector<scheduler::ModuleWork> work_of(std::span<const Workload> loads) {
  std::vector<scheduler::ModuleWork> work;
  for (const auto& load : loads) work.push_back({load.encoder_ms, load.llm_ms});
  return work;
}

class Runner {
 public:
  Runner(const std::string& policy, const PolicyQuestion& question, std::size_t pipeline,
         const PipelineBatch& batch)
      : question_(question),
        shape_(question.shapes[pipeline]),
        microbatches_(batch.microbatches),
        split_(scheduler::splits_weight_gradient(question.schedule)),
        work_(work_of(batch.work)) {
    if (policy == "auto")
      estimator_ = scheduler::StepEstimator::create(shape_, question.schedule,
                                                    static_cast<std::int32_t>(microbatches_));
  }

  scheduler::TaskGraph graph(const MicrobatchPlan& plan) const {
    return scheduler::task_graph(scheduler::module_pipeline(work_, plan.encoder, plan.llm, shape_),
                                 split_);
  }
  Result<double> step_ms(const MicrobatchPlan& plan) const {
    auto timeline = scheduler::make_schedule(graph(plan), question_.schedule);
    if (!timeline.ok()) return std::move(timeline).error();
    return timeline.value().step_ms;
  }
  balancer::PolicyOptions options() const {
    auto options = question_.options;
    options.microbatches = microbatches_;
    options.pipeline_stages = shape_.encoder_stages + shape_.llm_stages;
    options.cost = [this](const MicrobatchPlan& plan) {
      const auto step = step_ms(plan);
      return step.ok() ? step.value() : std::numeric_limits<double>::infinity();
    };
    options.bound = [this](const MicrobatchPlan& plan) {
      return scheduler::schedule_bound_ms(graph(plan), question_.schedule);
    };
    if (estimator_)
      options.estimate = [this](std::span<const Workload> loads) {
        const auto [step_ms, bound_ms] = (*estimator_)(work_of(loads));
        return balancer::StepEstimate{step_ms, bound_ms};
      };
    return options;
  }

 private:
  const PolicyQuestion& question_;
  const scheduler::ModulePipeline& shape_;
  std::int64_t microbatches_;
  bool split_;
  std::vector<scheduler::ModuleWork> work_;
  std::optional<scheduler::StepEstimator> estimator_;  // For `auto` alone.
};

Result<PolicyAnswer> answer_batch(const std::string& policy, const PolicyQuestion& question,
                                  const std::vector<PipelineBatch>& pipelines) {
  PolicyAnswer answer;
  std::vector<Workload> encoder, llm;
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    const auto& batch = pipelines[p];
    const Runner runner(policy, question, p, batch);
    auto planned = balancer::assign_microbatches(policy, batch.work, runner.options());
    if (!planned.ok()) return std::move(planned).error();
    const auto& plan = planned.value();
    auto step = runner.step_ms(plan);
    if (!step.ok()) return std::move(step).error();
    const auto encoder_loads = group_loads(batch.work, plan.encoder);
    const auto llm_loads = group_loads(batch.work, plan.llm);
    if (encoder.empty()) {
      for (const auto& load : encoder_loads) answer.encoder_loads.push_back(load.encoder_ms);
      for (const auto& load : llm_loads) answer.llm_loads.push_back(load.llm_ms);
    }
    encoder.insert(encoder.end(), encoder_loads.begin(), encoder_loads.end());
    llm.insert(llm.end(), llm_loads.begin(), llm_loads.end());
    answer.deferred += std::ssize(plan.deferred);
    answer.rows_held_max = std::max(answer.rows_held_max, rows_held(plan, batch.encoder_rows));
    answer.step_ms = std::max(answer.step_ms, step.value());
    answer.lower_bound_ms =
        std::max(answer.lower_bound_ms, scheduler::lower_bound_ms(runner.graph(plan)));
  }
  answer.encoder = encoder_spread(encoder);
  answer.llm = llm_spread(llm);
  return answer;
}

void add(balancer::Spread& mean, const balancer::Spread& one, double share) {
  mean.mean_ms += share * one.mean_ms;
  mean.std_ms += share * one.std_ms;
  mean.max_ms = std::max(mean.max_ms, one.max_ms);
}

}  // namespace

Result<PolicyReport> report_policy(const std::string& policy, const PolicyQuestion& question) {
  PolicyReport report{policy, {}, {}};
  const double share = 1 / static_cast<double>(std::max<std::size_t>(1, question.batches.size()));
  for (const auto& pipelines : question.batches) {
    auto answered = answer_batch(policy, question, pipelines);
    if (!answered.ok()) return std::move(answered).error();
    const auto& answer = answered.value();
    if (report.batches.empty()) {
      report.all.encoder_loads = answer.encoder_loads;
      report.all.llm_loads = answer.llm_loads;
    }
    add(report.all.encoder, answer.encoder, share);
    add(report.all.llm, answer.llm, share);
    report.all.deferred += answer.deferred;
    report.all.rows_held_max = std::max(report.all.rows_held_max, answer.rows_held_max);
    report.all.step_ms += share * answer.step_ms;
    report.all.lower_bound_ms += share * answer.lower_bound_ms;
    report.batches.push_back(std::move(answered).value());
  }
  return report;
}

}  // namespace troupe::app
