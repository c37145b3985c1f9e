#include "engine/contract/cuts.hpp"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "balancer/loads/workload.hpp"
#include "engine/execution/packing.hpp"
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

/// A teacher reads whole samples, so that a group with one does.
bool takes_whole_samples(const ParallelPlan& plan, ModuleGroupId group) {
  return std::ranges::any_of(plan.module_groups[group.index()].modules, [&](ModuleId module) {
    return plan.model.at(module).kind == ModuleKind::teacher;
  });
}

bool may_be_cut(const SampleShape& sample) {
  const auto has_several = [](const ModuleMedia& media) { return media.items.size() > 1; };
  const auto has_no_rows = [](const MediaShape& item) { return item.output_rows == 0; };
  return std::ranges::any_of(sample.media, has_several) &&
         std::ranges::none_of(sample.media, [&](const ModuleMedia& media) {
           return std::ranges::any_of(media.items, has_no_rows);
         });
}

/// The planned microbatches, with pieces where encoders have whole samples there.
scheduler::ReplicaCut in_pieces(const IterationPlan& iteration,
                                const std::vector<SamplePiece>& pieces, bool are_apart) {
  scheduler::ReplicaCut cut;
  if (pieces.empty()) return cut;
  std::map<std::int32_t, std::vector<std::int32_t>> units;  // Of samples that are cut.
  for (std::size_t p = 0; p < pieces.size(); ++p)
    units[pieces[p].sample].push_back(static_cast<std::int32_t>(iteration.samples.size() + p));
  cut.llm = iteration.microbatches.back();  // The llm's group is the last one.
  for (const Microbatch& planned : cut.llm) {
    Part own;
    for (const std::int32_t sample : planned.parts.front().samples) {
      const auto found = units.find(sample);
      if (found == units.end()) own.samples.push_back(sample);
      if (found == units.end()) continue;
      for (const std::int32_t unit : found->second) {
        const bool moves = are_apart && !cut.encoder.empty() &&
                           pieces[at(unit) - iteration.samples.size()].first > 0;
        (moves ? cut.encoder.back().parts.front() : own).samples.push_back(unit);
      }
    }
    cut.encoder.push_back({{std::move(own)}});
  }
  return cut;
}

scheduler::ReplicaCut cut_as(Cut cut, const ParallelPlan& plan, const IterationPlan& iteration) {
  if (cut == Cut::alone) return each_alone(iteration);
  if (cut == Cut::deferred) return deferring(iteration);
  return in_pieces(iteration, pieces_in(cut, plan, iteration), cut == Cut::pieces_apart);
}

/// Who hands which rows to whom, and of which sample.
using RowsKey = std::tuple<StageId, StageId, ModuleId, bool, std::int32_t>;

std::map<RowsKey, at::Tensor> by_sample(const ParallelPlan& plan, const IterationPlan& iteration,
                                        const std::map<MessageId, at::Tensor>& tensors) {
  std::map<RowsKey, std::map<std::int64_t, at::Tensor>> pieces;  // By their place in the sample.
  for (const auto& [id, tensor] : tensors) {
    const Message& message = iteration.at(id);
    for (const SampleRows& own : rows_in(plan, iteration, message))
      pieces[{message.source.stage, message.destination.stage, message.module, message.boundary,
              own.sample}][own.before] = tensor.narrow(0, own.begin, own.rows);
  }
  std::map<RowsKey, at::Tensor> found;
  for (const auto& [key, in_order] : pieces) {
    std::vector<at::Tensor> rows;
    for (const auto& [before, piece] : in_order) rows.push_back(piece);
    found[key] = at::cat(rows);
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

std::vector<SamplePiece> pieces_in(Cut cut, const ParallelPlan& plan,
                                   const IterationPlan& iteration) {
  std::vector<SamplePiece> pieces;
  if (cut != Cut::pieces && cut != Cut::pieces_apart) return pieces;
  for (std::size_t s = 0; s < iteration.samples.size(); ++s) {
    const SampleShape& sample = iteration.samples[s];
    if (!may_be_cut(sample)) continue;
    for (const ModuleMedia& media : sample.media) {
      if (takes_whole_samples(plan, plan.group_of(media.module))) continue;
      const auto count = static_cast<std::int32_t>(media.items.size()), half = (count + 1) / 2;
      pieces.push_back({static_cast<std::int32_t>(s), media.module, 0, half});
      if (half < count)
        pieces.push_back({static_cast<std::int32_t>(s), media.module, half, count - half});
    }
  }
  return pieces;
}

std::vector<MicrobatchList> microbatches_in(Cut cut, const ParallelPlan& plan,
                                            const IterationPlan& iteration) {
  if (cut == Cut::planned) return iteration.microbatches;
  auto made = cut_as(cut, plan, iteration);
  if (made.llm.empty()) return {};
  std::vector<MicrobatchList> microbatches(plan.replicas.size());
  scheduler::deal_microbatches(
      plan, PipelineId{0}, {std::move(made)}, [](ReplicaId, const Microbatch&) { return 0.0; },
      microbatches);
  if (cut == Cut::pieces || cut == Cut::pieces_apart)
    for (std::size_t r = 0; r < microbatches.size(); ++r)
      if (takes_whole_samples(plan, plan.replicas[r].group))
        microbatches[r] = iteration.microbatches[r];
  return microbatches;
}

std::vector<SampleRows> rows_in(const ParallelPlan& plan, const IterationPlan& iteration,
                                const Message& message) {
  const auto spans = [&](std::span<const SampleShape> shapes, std::span<const std::int32_t> units) {
    return row_spans(plan.model, message.module,
                     message.boundary ? RowKind::output : RowKind::hidden, shapes, units);
  };
  const auto rows_of = [&](std::span<const SampleShape> shapes, std::int32_t unit) {
    return row_count(spans(shapes, std::array{unit}));
  };
  const SampleUnits units(iteration.samples, iteration.pieces);
  std::vector<SampleRows> found;
  for (const RowSpan& span : spans(units.shapes(), message.samples)) {
    SampleRows own{units.sample_of(span.sample), span.begin, span.rows};
    own.all = rows_of(iteration.samples, own.sample);
    if (const SamplePiece* piece = units.piece(span.sample); piece != nullptr && piece->first > 0) {
      const SamplePiece earlier{piece->sample, piece->module, 0, piece->first};
      const SampleUnits before(iteration.samples, std::span(&earlier, 1));
      own.before = rows_of(before.shapes(), static_cast<std::int32_t>(before.whole()));
    }
    found.push_back(own);
  }
  return found;
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
