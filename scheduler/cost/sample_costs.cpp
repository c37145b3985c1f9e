#include "scheduler/cost/sample_costs.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>

#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/iteration/redistribution.hpp"

namespace troupe::scheduler {

namespace {

template <class Value>
PassCosts each(const PartCurves& curves, Value value) {
  return {value(curves.forward), value(curves.input_grad), value(curves.weight_grad),
          value(curves.activations)};
}

/// What one sample brings to every layer of one kind in one module.
struct SampleTerm {
  double tokens = 0;
  PassCosts attention;  ///< Sum over its sequences: the kernels run once for each.
};

/// One kind of layer in one module, and what a sample of every shape brings to it.
struct Term {
  KindCurves curves;
  std::vector<SampleTerm> shapes;
};

/// What decides what a layer costs, besides its samples.
struct LayerFacts {
  std::size_t term = 0;
  bool trains = false;
  bool trained_before = false;  ///< Something trains before it in its module.
};

SampleTerm sample_term(const ModelGraph& graph, const SampleShape& sample, LayerId layer,
                       const KindCurves& curves) {
  SampleTerm made;
  if (output_rows(graph, layer.module, sample) == 0) return made;
  if (is_head(graph, layer)) return {static_cast<double>(sample.trained_tokens), {}};
  for (const TokenCount length : sequence_lengths(graph, sample, layer.module)) {
    made.tokens += static_cast<double>(length);
    made.attention += each(
        curves.attention, [&](const auto& curve) { return curve.at(static_cast<double>(length)); });
  }
  // By exactly 1 where attention is causal: costs keep their bits.
  const double share = attention_share(graph, sample, layer.module);
  made.attention.forward *= share;
  made.attention.input_grad *= share;
  made.attention.weight_grad *= share;
  return made;
}

/// In all that costs can depend on, so that the rest of a sample may differ.
bool is_same_shape(const SampleShape* a, const SampleShape* b) {
  return a->llm_tokens == b->llm_tokens && a->trained_tokens == b->trained_tokens &&
         a->media == b->media && a->markers == b->markers;
}

/// Of lengths and places of media: samples that differ in more are few.
std::size_t shape_hash(const SampleShape* sample) {
  std::size_t hash = 0;
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ std::hash<std::int64_t>{}(value)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32U;
  };
  mix(sample->llm_tokens);
  mix(sample->trained_tokens);
  for (const ModuleMedia& media : sample->media)
    for (const MediaShape& item : media.items) mix(item.hidden_rows);
  for (const MediaMarker& marker : sample->markers) mix(marker.text_before);
  return hash;
}

PassCosts needed(const AlikeLayers& layers, const PassCosts& one, bool passed) {
  return {layers.count * one.forward,
          (layers.input_grads + (passed ? layers.input_grads_passed : 0)) * one.input_grad,
          layers.weight_grads * one.weight_grad,
          (layers.kept + (passed ? layers.kept_passed : 0)) * one.activations};
}

}  // namespace

PassCosts& PassCosts::operator+=(const PassCosts& other) {
  forward += other.forward;
  input_grad += other.input_grad;
  weight_grad += other.weight_grad;
  activations += other.activations;
  return *this;
}

struct SampleCosts::ModuleSums {
  std::vector<Term> terms;
  std::vector<LayerFacts> layers;
};

SampleSums::SampleSums(const CostModel& model, std::span<const SampleShape> samples)
    : model_(model) {
  const auto shape_of = std::make_shared<std::vector<std::size_t>>();
  shape_of->reserve(samples.size());
  std::unordered_map<const SampleShape*, std::size_t, decltype(&shape_hash),
                     decltype(&is_same_shape)>
      numbers(0, shape_hash, is_same_shape);
  for (const SampleShape& sample : samples) {
    const auto [number, is_new] = numbers.try_emplace(&sample, shapes_.size());
    if (is_new) shapes_.push_back(sample);
    shape_of->push_back(number->second);
  }
  shape_of_ = shape_of;
  const RowFlow flow(model.graph(), shapes_);
  const auto gradient_in = std::make_shared<SampleCosts::GradientIn>();
  for (std::size_t m = 0; m < model.graph().modules.size(); ++m) {
    auto& of_module = gradient_in->emplace_back();
    for (std::size_t s = 0; s < shapes_.size(); ++s)
      of_module.push_back(flow.wants_gradient(ModuleId{m}, 0, static_cast<std::int32_t>(s)));
  }
  gradient_in_ = gradient_in;
}

Status SampleSums::add(ModuleId module, Parallelism degrees, SampleCosts& costs) {
  costs.gradient_in_ = gradient_in_;
  costs.shape_of_ = shape_of_;
  costs.modules_.resize(model_.graph().modules.size());
  auto& known = costs.modules_[module.index()];
  if (std::ranges::any_of(known, [&](const auto& at) { return at.degrees == degrees; }))
    return Done{};
  auto sums = sums_of(module, degrees);
  if (!sums.ok()) return std::move(sums).error();
  known.push_back({degrees, std::move(sums).value()});
  return Done{};
}

Result<SampleCosts> SampleSums::at(std::span<const Parallelism> parallelisms) {
  SampleCosts costs;
  for (std::size_t m = 0; m < model_.graph().modules.size(); ++m) {
    const auto degrees = m < parallelisms.size() ? parallelisms[m] : Parallelism{};
    if (auto status = add(ModuleId{m}, degrees, costs); !status.ok()) return status.error();
  }
  return costs;
}

Result<SampleCosts> SampleSums::of(const ParallelPlan& plan) {
  SampleCosts costs;
  for (const Stage& stage : plan.stages)
    for (const LayerRun& run : stage.runs)
      if (auto status = add(run.module, stage.grid, costs); !status.ok()) return status.error();
  return costs;
}

Result<std::shared_ptr<const SampleSums::ModuleSums>> SampleSums::sums_of(ModuleId module,
                                                                          Parallelism degrees) {
  const auto before = known_.find({module, degrees});
  if (before != known_.end()) return before->second;
  const ModelGraph& graph = model_.graph();
  const auto sums = std::make_shared<ModuleSums>();
  std::map<std::pair<std::string, bool>, std::size_t> term_of;
  bool trained = false;
  for (std::size_t l = 0; l < graph.at(module).layers.size(); ++l) {
    const LayerId layer{module, static_cast<std::int32_t>(l)};
    const auto [term, fresh] =
        term_of.try_emplace({model_.kind_name(layer), is_head(graph, layer)}, sums->terms.size());
    if (fresh) {
      const auto curves = model_.curves(layer, degrees);
      if (!curves.ok()) return curves.error();
      Term& made = sums->terms.emplace_back(Term{*curves.value(), {}});
      for (const auto& shape : shapes_)
        made.shapes.push_back(sample_term(graph, shape, layer, made.curves));
    }
    const bool trains_here = trains(graph, layer);
    sums->layers.push_back({term->second, trains_here, trained});
    trained = trained || trains_here;
  }
  known_.emplace(std::pair(module, degrees), sums);
  return std::shared_ptr<const ModuleSums>(sums);
}

SampleCosts SampleCosts::in_order(std::vector<std::int32_t> order) const {
  SampleCosts costs = *this;
  costs.order_ = std::move(order);
  return costs;
}

std::size_t SampleCosts::shape_of(std::size_t sample) const {
  return (*shape_of_)[order_.empty() ? sample : static_cast<std::size_t>(order_[sample])];
}

std::size_t SampleCosts::shape_count() const {
  return gradient_in_->empty() ? 0 : gradient_in_->front().size();
}

void SampleCosts::add(const LayerRun& run, const Parallelism& degrees,
                      std::vector<AlikeLayers>& list) const {
  const auto& known = modules_[run.module.index()];
  const auto at = std::ranges::find(known, degrees, &AtDegrees::degrees);
  assert(at != known.end());
  const std::size_t first = list.size();
  for (auto index = run.layers.begin; index < run.layers.end; ++index) {
    const LayerFacts& layer = at->sums->layers[static_cast<std::size_t>(index)];
    std::size_t entry = first;
    while (entry < list.size() && list[entry].term != layer.term) ++entry;
    if (entry == list.size())
      list.push_back({layer.term, run.module, static_cast<std::size_t>(at - known.begin())});
    AlikeLayers& alike = list[entry];
    alike.count += 1;
    alike.weight_grads += layer.trains;
    (layer.trained_before ? alike.input_grads : alike.input_grads_passed) += 1;
    (layer.trained_before || layer.trains ? alike.kept : alike.kept_passed) += 1;
  }
}

PassCosts SampleCosts::part(const std::vector<AlikeLayers>& list,
                            std::span<const std::int32_t> samples) const {
  PassCosts sum;
  for (const AlikeLayers& layers : list) {
    const Term& term = modules_[layers.module.index()][layers.sums].sums->terms[layers.term];
    const auto& gradient_in = (*gradient_in_)[layers.module.index()];
    SampleTerm whole;
    bool passed = false;
    for (const std::int32_t sample : samples) {
      const std::size_t shape = shape_of(static_cast<std::size_t>(sample));
      whole.tokens += term.shapes[shape].tokens;
      whole.attention += term.shapes[shape].attention;
      passed = passed || gradient_in[shape];
    }
    if (whole.tokens <= 0) continue;
    PassCosts one =
        each(term.curves.linear, [&](const auto& curve) { return curve.at(whole.tokens); });
    one += whole.attention;
    sum += needed(layers, one, passed);
  }
  return sum;
}

PassCosts SampleCosts::sample(const std::vector<AlikeLayers>& list, std::size_t sample) const {
  PassCosts sum;
  const std::size_t shape = shape_of(sample);
  for (const AlikeLayers& layers : list) {
    const Term& term = modules_[layers.module.index()][layers.sums].sums->terms[layers.term];
    const SampleTerm& own = term.shapes[shape];
    const PartCurves& linear = term.curves.linear;
    const PassCosts one{linear.forward.variable_at(own.tokens) + own.attention.forward,
                        linear.input_grad.variable_at(own.tokens) + own.attention.input_grad,
                        linear.weight_grad.variable_at(own.tokens) + own.attention.weight_grad, 0};
    sum += needed(layers, one, (*gradient_in_)[layers.module.index()][shape]);
  }
  return sum;
}

}  // namespace troupe::scheduler
