#include "engine/contract/cuts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "balancer/loads/workload.hpp"
#include "engine/iteration/pipeline_costs.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/deal_microbatches.hpp"

namespace troupe::engine {

namespace {

constexpr double kOff = std::numeric_limits<double>::infinity();

scheduler::ReplicaCut each_alone(const IterationPlan& iteration) {
  scheduler::ReplicaCut cut;
  for (std::size_t s = 0; s < iteration.samples.size(); ++s)
    cut.llm.push_back({{Part{{static_cast<std::int32_t>(s)}}}});
  cut.encoder = cut.llm;
  return cut;
}

/// Three groups of samples, each medium spread over them from the first one on; those of text alone
/// likewise.
std::array<std::vector<std::int32_t>, 3> in_three(const std::vector<SampleShape>& samples) {
  std::array<std::vector<std::int32_t>, 3> groups;
  std::array<std::map<ModuleId, int>, 3> counts;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    std::vector<ModuleId> media;
    for (const ModuleMedia& one : samples[s].media) media.push_back(one.module);
    if (media.empty()) media.emplace_back();  // Of none.
    std::array<int, 3> loads{};
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const ModuleId module : media) loads[g] += counts[g][module];
    const auto least = static_cast<std::size_t>(std::ranges::min_element(loads) - loads.begin());
    groups[least].push_back(static_cast<std::int32_t>(s));
    for (const ModuleId module : media) ++counts[least][module];
  }
  return groups;
}

std::vector<std::int32_t> both(const std::vector<std::int32_t>& a,
                               const std::vector<std::int32_t>& b) {
  std::vector<std::int32_t> all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::ranges::sort(all);
  return all;
}

/// The first two groups are the encoders' first microbatch, the last two the llm's second one.
/// Without a second part: nothing.
scheduler::ReplicaCut deferring(const IterationPlan& iteration) {
  const auto [early, late, last] = in_three(iteration.samples);
  balancer::MicrobatchPlan groups;
  groups.encoder = {both(early, late), last};
  groups.llm = {early, both(late, last)};
  std::vector<std::int32_t> all(iteration.samples.size());
  std::iota(all.begin(), all.end(), 0);
  auto cut = parts_of(groups, all, iteration.samples, /*splits_parts=*/true);
  const bool has_parts = std::ranges::any_of(
      cut.encoder, [](const Microbatch& microbatch) { return microbatch.parts.size() > 1; });
  return has_parts ? std::move(cut) : scheduler::ReplicaCut{};
}

/// Who hands which rows to whom, and of which sample.
using RowsKey = std::tuple<StageId, StageId, ModuleId, bool, std::int32_t>;

std::map<RowsKey, at::Tensor> by_sample(const ParallelPlan& plan, const IterationPlan& iteration,
                                        const std::map<MessageId, at::Tensor>& tensors) {
  std::map<RowsKey, at::Tensor> found;
  for (const auto& [id, tensor] : tensors) {
    const Message& message = iteration.at(id);
    for (const RowSpan& span : spans_of(plan, iteration, message))
      found[{message.source.stage, message.destination.stage, message.module, message.boundary,
             span.sample}] = tensor.narrow(0, span.begin, span.rows);
  }
  return found;
}

double difference_of(double a, double b) {
  return std::abs(a - b) / std::max(std::abs(a), std::numeric_limits<double>::min());
}

/// Each part's loss is the sum of those of its samples.
double difference_of_losses(const ParallelPlan& plan, StageId id, const CutOutcome& alone,
                            const CutOutcome& other) {
  const auto samples = [&](const CutOutcome& cut, const PartKey& part) {
    return samples_of(plan, cut.iteration, id, part.microbatch, part.part);
  };
  std::map<std::int32_t, double> losses;
  for (const auto& [part, loss] : alone.outcome.part_losses)
    losses[samples(alone, part).front()] = loss;
  double largest = 0;
  for (const auto& [part, loss] : other.outcome.part_losses) {
    double sum = 0;
    for (const std::int32_t sample : samples(other, part)) {
      auto own = losses.extract(sample);
      sum += own.empty() ? kOff : own.mapped();
    }
    largest = larger(largest, std::isfinite(sum) ? difference_of(sum, loss) : kOff);
  }
  return losses.empty() ? largest : kOff;
}

double difference_of_added(const StageOutcome& alone, const StageOutcome& other) {
  if (alone.added.size() != other.added.size()) return kOff;
  double largest = 0;
  for (const auto& [name, value] : alone.added) {
    const auto found = other.added.find(name);
    largest =
        larger(largest, found == other.added.end() ? kOff : difference_of(value, found->second));
  }
  return largest;
}

}  // namespace

std::vector<MicrobatchList> microbatches_in(Cut cut, const ParallelPlan& plan,
                                            const IterationPlan& iteration) {
  if (cut == Cut::planned) return iteration.microbatches;
  auto made = cut == Cut::alone ? each_alone(iteration) : deferring(iteration);
  if (made.llm.empty()) return {};
  std::vector<MicrobatchList> microbatches(plan.replicas.size());
  scheduler::deal_microbatches(
      plan, PipelineId{0}, {std::move(made)}, [](ReplicaId, const Microbatch&) { return 0.0; },
      microbatches);
  return microbatches;
}

std::vector<RowSpan> spans_of(const ParallelPlan& plan, const IterationPlan& iteration,
                              const Message& message) {
  return row_spans(plan.model, message.module, message.boundary ? RowKind::output : RowKind::hidden,
                   iteration.samples, message.samples);
}

double difference_by_sample(const ParallelPlan& plan, StageId id, const CutOutcome& alone,
                            const CutOutcome& other) {
  const StageOutcome &ours = alone.outcome, &theirs = other.outcome;
  std::vector<at::Tensor> a = ours.groups, b = theirs.groups;
  for (const auto member : {&StageRows::rows, &StageRows::gradients}) {
    const auto of_theirs = by_sample(plan, other.iteration, theirs.sent.*member);
    // A message has a gradient where one of its samples wants one.
    for (const auto& [key, rows] : by_sample(plan, alone.iteration, ours.sent.*member))
      if (const auto found = of_theirs.find(key); found != of_theirs.end())
        a.push_back(rows), b.push_back(found->second);
  }
  return std::max({difference(a, b), difference_of_losses(plan, id, alone, other),
                   difference_of_added(ours, theirs)});
}

}  // namespace troupe::engine
