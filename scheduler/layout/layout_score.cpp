#include "scheduler/layout/layout_score.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "runtime/vocabulary/random.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/deliveries.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "scheduler/simulate/room_demands.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::int64_t kBatches = 3;
constexpr std::int64_t kManySamples = 256;  ///< So many already have the mean mix.
constexpr std::int64_t kWeighedMicrobatches = 8;
constexpr std::int64_t kWeighedSamples = 128;  ///< The simulator has the last word on all of them.

std::int32_t narrow(std::int64_t count) { return static_cast<std::int32_t>(count); }

/// Every layer a stage of its own, so that the costs of stages are those of layers.
Result<ParallelPlan> finest_plan(const ModelGraph& model) {
  HandLayout layout;
  auto& stages = layout.pipelines.emplace_back();
  for (const auto& module : model.modules)
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(module.layers.size()); ++l)
      stages.push_back({narrow(static_cast<std::int64_t>(stages.size())),
                        0,
                        {{module.name, LayerRange{l, l + 1}}}});
  return place_by_hand(model, layout, {narrow(static_cast<std::int64_t>(stages.size())), 1});
}

/// Indices of `count` samples drawn with a seed, without repetition while there are enough.
std::vector<std::size_t> draw(std::size_t samples, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::size_t> left, drawn;
  for (std::int64_t i = 0; i < count; ++i) {
    if (left.empty()) {
      left.resize(samples);
      std::iota(left.begin(), left.end(), std::size_t{0});
    }
    const auto place = static_cast<std::size_t>(random.below(left.size()));
    drawn.push_back(left[place]);
    left[place] = left.back();
    left.pop_back();
  }
  return drawn;
}

/// Elements of the rows between two layers of a module, for the microbatch with most.
double most_hidden(const RowFlow& flow, ModuleId id, const ModuleSpec& module,
                   const MicrobatchList& microbatches) {
  TokenCount most = 0;
  for (const Microbatch& microbatch : microbatches) {
    TokenCount rows = 0;
    for (const std::int32_t sample : microbatch.parts.front().samples)
      rows += flow.hidden(id, sample);
    most = std::max(most, rows);
  }
  return static_cast<double>(most) * static_cast<double>(module.hidden_width);
}

/// Of each layer of encoders what stays of the microbatch with most where a run ends with it
/// (`LayerWeights::staying_bytes`), in elements of so many bytes.
std::vector<double> staying_bytes(const ModelGraph& model, const RowFlow& flow,
                                  const std::vector<LayerId>& layers,
                                  const std::vector<Parallelism>& parallelisms, double element,
                                  const MicrobatchList& microbatches) {
  std::vector<double> bytes(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const ModuleId module = layers[i].module;
    if (module == model.llm()) continue;
    const bool given = module.index() < parallelisms.size();
    for (const Microbatch& microbatch : microbatches) {
      const double elements = wanted_elements(model, flow, module, layers[i].layer + 1,
                                              microbatch.parts.front().samples);
      const double own = elements * element / (given ? parallelisms[module.index()].cp : 1);
      bytes[i] = std::max(bytes[i], own);
    }
  }
  return bytes;
}

/// Milliseconds that a device spends on what goes to host memory and comes back, but for latencies.
double copies_ms(const DeviceSpeeds& speeds, double bytes) {
  const double rate = speeds.host.gigabytes_per_s * 1e6;
  return rate > 0 ? 2 * bytes / rate : 0;
}

}  // namespace

void add_step(const SimulatedStep& step, PredictedStep& sum) {
  sum.step_ms += step.step_ms;
  sum.bubble += step.bubble;
  sum.stage_ms.resize(step.stage_ms.size());
  sum.stage_bubble.resize(step.stage_bubble.size());
  sum.peak_memory_bytes.resize(step.peak_memory_bytes.size());
  sum.peak_host_bytes.resize(step.peak_host_bytes.size());
  for (std::size_t s = 0; s < step.stage_ms.size(); ++s) {
    sum.stage_ms[s] += step.stage_ms[s];
    sum.stage_bubble[s] += step.stage_bubble[s];
  }
  for (std::size_t d = 0; d < step.peak_memory_bytes.size(); ++d)
    sum.peak_memory_bytes[d] = std::max(sum.peak_memory_bytes[d], step.peak_memory_bytes[d]);
  for (std::size_t d = 0; d < step.peak_host_bytes.size(); ++d)
    sum.peak_host_bytes[d] = std::max(sum.peak_host_bytes[d], step.peak_host_bytes[d]);
}

void divide_steps(PredictedStep& sum, double count) {
  sum.step_ms /= count;
  sum.bubble /= count;
  for (auto& ms : sum.stage_ms) ms /= count;
  for (auto& share : sum.stage_bubble) share /= count;
}

std::vector<SampleShape> draw_batch(const std::vector<SampleShape>& samples, std::int64_t count,
                                    std::uint64_t seed) {
  std::vector<SampleShape> batch;
  for (const auto drawn : draw(samples.size(), count, seed)) {
    batch.push_back(samples[drawn]);
    batch.back().position = std::ssize(batch) - 1;
  }
  return batch;
}

LayoutScorer::LayoutScorer(const AutoLayoutRequest& request)
    : request_(request), finest_(finest_plan(request.model->graph())) {
  const auto batches = std::clamp<std::int64_t>(kManySamples / request.global_batch, 1, kBatches);
  std::map<std::size_t, std::int32_t> index;
  std::vector<SampleShape> drawn;  // Each sample once.
  for (std::int64_t b = 0; b < batches; ++b) {
    const auto seed = request.seed + static_cast<std::uint64_t>(b);
    // What data move is left to the judge: it is little beside work, and the same in most layouts.
    batches_.push_back(of_no_layout(draw_batch(request.samples, request.global_batch, seed)));
    auto& of = drawn_of_.emplace_back();
    for (const auto sample : draw(request.samples.size(), request.global_batch, seed)) {
      const auto [known, fresh] = index.try_emplace(sample, narrow(std::ssize(drawn)));
      if (fresh) drawn.push_back(request.samples[sample]);
      of.push_back(known->second);
    }
  }
  for (const auto& batch : batches_)
    flows_.push_back(std::make_shared<const RowFlow>(request.model->graph(), batch));
  sums_ = std::make_unique<SampleSums>(*request.model, drawn);
}

ParallelPlan LayoutScorer::finest_at(const std::vector<Parallelism>& parallelisms) const {
  ParallelPlan plan = finest_.value();
  for (Stage& stage : plan.stages)
    if (const auto m = stage.runs.front().module.index(); m < parallelisms.size())
      stage.grid = parallelisms[m];
  return plan;
}

Result<const LayoutScorer::BatchCosts*> LayoutScorer::costs_at(const ParallelPlan& plan) {
  Degrees degrees(plan.model.modules.size());
  for (const Stage& stage : plan.stages)
    for (const LayerRun& run : stage.runs) {
      auto& own = degrees[run.module.index()];
      if (std::ranges::find(own, stage.grid) == own.end()) own.push_back(stage.grid);
    }
  const auto before = known_.find(degrees);
  if (before != known_.end()) return &before->second;
  auto costs = sums_->of(plan);
  if (!costs.ok()) return std::move(costs).error();
  BatchCosts made;
  for (const auto& order : drawn_of_) made.push_back(costs.value().in_order(order));
  return &known_.emplace(std::move(degrees), std::move(made)).first->second;
}

Result<LayerWeights> LayoutScorer::weights(std::int32_t pipelines,
                                           const std::vector<Parallelism>& parallelisms) {
  const auto before = weighed_.find({pipelines, parallelisms});
  if (before != weighed_.end()) return before->second;
  if (!finest_.ok()) return finest_.error();
  const ParallelPlan plan = finest_at(parallelisms);
  const auto costs = costs_at(plan);
  if (!costs.ok()) return costs.error();
  auto weights = weigh(costs.value()->front(), parallelisms, pipelines);
  // Stages stand in topological order, which need not be that of the modules.
  const auto of_stages = stage_state_bytes(plan, request_.prediction);
  const auto in_host = stage_parameters_in_host(plan, request_.prediction);
  std::map<LayerId, std::pair<double, double>> bytes;  // State, and what of it leaves.
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const LayerRun& run = plan.stages[s].runs.front();
    bytes[{run.module, run.layers.begin}] = {of_stages[s], in_host[s].all};
  }
  const bool any_leave = std::ranges::any_of(plan.model.modules, &ModuleSpec::parameters_in_host);
  for (const auto& [layer, own] : bytes) {
    weights.state_bytes.push_back(own.first);
    if (any_leave) weights.leaving_bytes.push_back(own.second);
  }
  weighed_.emplace(std::pair{pipelines, parallelisms}, weights);
  return weights;
}

LayerWeights LayoutScorer::weigh(const SampleCosts& costs,
                                 const std::vector<Parallelism>& parallelisms,
                                 std::int32_t pipelines) const {
  // Samples are dealt in order, larger shares first: the first pipeline has the first ones.
  const auto own = (request_.global_batch + pipelines - 1) / pipelines;
  auto microbatches = cut_by_count(0, narrow(own), narrow(request_.microbatches));
  // Of large microbatches fewer have as many samples.
  const auto size = std::ssize(microbatches.front().parts.front().samples);
  const auto weighed_count = static_cast<std::size_t>(
      std::clamp<std::int64_t>(kWeighedSamples / size, 1, kWeighedMicrobatches));
  if (microbatches.size() > weighed_count) microbatches.resize(weighed_count);

  LayerWeights weights;
  const ModelGraph& model = request_.model->graph();
  std::vector<AlikeLayers> layers, before;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const bool offloads = request_.offload_encoders && ModuleId{m} != model.llm();
    for (std::int32_t l = 0; l < narrow(std::ssize(model.modules[m].layers)); ++l) {
      weights.layers.push_back({ModuleId{m}, l});
      layers.clear();
      costs.add({ModuleId{m}, {l, l + 1}},
                m < parallelisms.size() ? parallelisms[m] : Parallelism{}, layers);
      if (layers == before) {  // Most layers are like the one before them.
        weights.work_ms.push_back(weights.work_ms.back());
        weights.activation_bytes.push_back(weights.activation_bytes.back());
        continue;
      }
      double work_ms = 0, activations = 0;
      for (const auto& microbatch : microbatches) {
        const PassCosts cost = costs.part(layers, microbatch.parts.front().samples);
        work_ms += cost.forward + (cost.input_grad + cost.weight_grad);
        if (offloads) work_ms += copies_ms(request_.prediction.speeds, cost.activations);
        activations = std::max(activations, cost.activations);
      }
      weights.work_ms.push_back(work_ms / static_cast<double>(microbatches.size()));
      weights.activation_bytes.push_back(activations);
      std::swap(layers, before);
    }
  }
  weigh_rows(microbatches, parallelisms, weights);
  if (request_.offload_encoders)
    weights.staying_bytes =
        staying_bytes(model, *flows_.front(), weights.layers, parallelisms,
                      bytes_per_element(request_.prediction.dtype), microbatches);
  return weights;
}

void LayoutScorer::weigh_rows(const MicrobatchList& microbatches,
                              const std::vector<Parallelism>& parallelisms,
                              LayerWeights& weights) const {
  const ModelGraph& model = request_.model->graph();
  const RowFlow& flow = *flows_.front();
  weights.arriving_bytes.assign(weights.layers.size(), 0);
  weights.crossing_bytes.assign(weights.layers.size(), {});
  const auto place_of = [&](LayerId layer) {
    const auto place = std::ranges::find(weights.layers, layer);
    return static_cast<std::size_t>(place - weights.layers.begin());
  };
  const auto element_of = [&](ModuleId module) {
    const bool given = module.index() < parallelisms.size();
    return bytes_per_element(request_.prediction.dtype) /
           (given ? parallelisms[module.index()].cp : 1);
  };
  std::map<std::size_t, std::vector<ModuleId>> entering;  // By layer of the llm.
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const ModuleId id{m};
    const ModuleSpec& module = model.modules[m];
    const auto layers = narrow(std::ssize(module.layers));
    const std::size_t first = place_of({id, 0}), last = place_of({id, layers - 1});
    const double hidden = most_hidden(flow, id, module, microbatches) * element_of(id);
    for (std::size_t place = first + 1; place <= last; ++place)
      weights.arriving_bytes[place] = hidden;
    for (const ModuleId next : module.next) {
      const std::size_t entry = place_of({next, entry_layer(model, id, next)});
      if (next == model.llm()) {
        entering[entry].push_back(id);
        weights.crossing_bytes[last] =
            crossing_bytes(model, flow, element_of(id), {id}, Crossing::gradients, microbatches);
      } else {
        weights.arriving_bytes[entry] +=
            crossing_bytes(model, flow, element_of(next), {id}, Crossing::rows, microbatches).most;
      }
    }
  }
  for (const auto& [entry, modules] : entering)
    weights.crossing_bytes[entry] =
        crossing_bytes(model, flow, element_of(model.llm()), modules, Crossing::rows, microbatches);
}

Result<std::vector<std::int32_t>> LayoutScorer::in_flight_bounds(
    const ParallelPlan& plan, const SimulationCosts& costs, std::span<const SampleShape> samples,
    const std::shared_ptr<const RowFlow>& flow,
    const std::vector<MicrobatchList>& microbatches) const {
  std::vector<std::int32_t> none;
  if (!has_phases(request_.schedule)) return none;
  if (request_.max_in_flight > 0)
    return std::vector<std::int32_t>(plan.stages.size(), request_.max_in_flight);
  if (request_.device_memory.count() == 0) return none;
  return memory_bounds(plan, with_arriving_rows(costs, plan, flow), request_.device_memory,
                       microbatches, request_.schedule, *flow, SampleUnits(samples, {}));
}

Result<PredictedStep> LayoutScorer::score(const ParallelPlan& plan, std::size_t batches,
                                          std::optional<std::int32_t> window) {
  const auto of_batches = costs_at(plan);
  if (!of_batches.ok()) return of_batches.error();
  const std::size_t count = batches == 0 ? batches_.size() : std::min(batches, batches_.size());
  PredictedStep sum;
  for (std::size_t b = 0; b < count; ++b) {
    IterationInput input;
    input.schedule = request_.schedule;
    input.flow = flows_[b];
    input.microbatches =
        assign_by_count(plan, narrow(request_.global_batch), narrow(request_.microbatches));
    auto costs =
        predicted_costs(plan, (*of_batches.value())[b], input.microbatches, request_.prediction);
    input.offload_encoders = request_.offload_encoders;
    if (request_.offload_encoders) costs = with_offloading(std::move(costs), plan, input.flow);
    input.task_cost = costs.task_ms;
    input.message_cost = message_costs(plan, costs);
    input.routes = {request_.boundary, link_costs(costs)};
    if (window) {
      input.max_in_flight.assign(plan.stages.size(), *window);
    } else {
      auto bounds = in_flight_bounds(plan, costs, batches_[b], input.flow, input.microbatches);
      if (!bounds.ok()) return std::move(bounds).error();
      input.max_in_flight = std::move(bounds).value();
      if (request_.max_in_flight == 0)  // Else the bounds are those of the job.
        input.refuse_bound = [&, flow = flows_[b]](StageId stage, std::int32_t needed,
                                                   const std::vector<MicrobatchList>& lists) {
          return short_of_memory(plan, with_arriving_rows(costs, plan, flow),
                                 request_.device_memory, lists, request_.schedule, stage, needed);
        };
    }
    auto iteration = plan_iteration(plan, batches_[b], std::move(input));
    if (!iteration.ok()) return std::move(iteration).error();
    auto step = simulate(plan, iteration.value(), costs);
    if (!step.ok()) return std::move(step).error();
    add_step(step.value(), sum);
  }
  divide_steps(sum, static_cast<double>(count));
  return sum;
}

double LayoutScorer::actions(std::int32_t pipelines, std::int32_t groups) const {
  const auto microbatches = static_cast<double>(
      std::min(request_.microbatches, request_.global_batch / std::max(pipelines, 1)));
  // Forward, backward and two transfers of each in every batch, with a second stage on some groups.
  // Phases are ordered twice, with barriers and without, and have bounds by memory.
  const double each = has_phases(request_.schedule) ? 24 : 8;
  return static_cast<double>(batches_.size()) * each * groups * (microbatches + 4);
}

}  // namespace troupe::scheduler
