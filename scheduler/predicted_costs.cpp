#include "scheduler/predicted_costs.hpp"

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/vocabulary/module_rows.hpp"
#include "scheduler/redistribution.hpp"

namespace troupe::scheduler {

namespace {

/// One value per pass. Used for sums over layers, samples and parts.
struct Passes {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
  double activations = 0;

  Passes& operator+=(const Passes& other) {
    forward += other.forward;
    input_grad += other.input_grad;
    weight_grad += other.weight_grad;
    activations += other.activations;
    return *this;
  }
};

template <class Value>
Passes each(const PartCurves& curves, Value value) {
  return {value(curves.forward), value(curves.input_grad), value(curves.weight_grad),
          value(curves.activations)};
}

bool is_head(const ModelGraph& graph, LayerId layer) {
  const auto& layers = graph.at(layer.module).layers;
  return layer.module == graph.llm() && layers.size() > 1 &&
         layer.layer == static_cast<std::int32_t>(layers.size()) - 1;
}

/// What one sample brings to every layer of one kind in one module.
struct SampleTerm {
  double tokens = 0;
  Passes attention;  ///< Sum over its sequences: the kernels run once for each.
};

/// One kind of layer in one module, and what every sample brings to it.
struct Term {
  KindCurves curves;
  std::vector<SampleTerm> samples;
};

/// Layers of one kind in one run, by which gradients they need.
struct Layers {
  std::size_t term = 0;
  ModuleId module;
  double count = 0;
  double weight_grads = 0;        ///< Layers that train.
  double input_grads = 0;         ///< Layers with something trainable before them in the module.
  double input_grads_passed = 0;  ///< Layers that need one only if the module's input does.
  double kept = 0;                ///< Layers whose activations wait for a backward in any case.
  double kept_passed = 0;         ///< Only if the module's input needs a gradient.
};

/// Sums per sample and kind of layer; answers for the layers of any stage and any part.
class Predictor {
 public:
  /// Cost of these layers for the samples of a part.
  Passes part(const std::vector<Layers>& list, const std::vector<std::int32_t>& part) const {
    Passes sum;
    for (const Layers& layers : list) {
      const Term& term = terms[layers.term];
      SampleTerm whole;
      bool passed = false;
      for (const std::int32_t sample : part) {
        const auto s = static_cast<std::size_t>(sample);
        whole.tokens += term.samples[s].tokens;
        whole.attention += term.samples[s].attention;
        passed = passed || gradient_in[layers.module.index()][s];
      }
      if (whole.tokens <= 0) continue;
      Passes one =
          each(term.curves.linear, [&](const auto& curve) { return curve.at(whole.tokens); });
      one += whole.attention;
      sum += needed(layers, one, passed);
    }
    return sum;
  }

  /// Cost of these layers for one sample without the constants of a launch.
  Passes sample(const std::vector<Layers>& list, std::size_t sample) const {
    Passes sum;
    for (const Layers& layers : list) {
      const Term& term = terms[layers.term];
      Passes one = each(term.curves.linear, [&](const auto& curve) {
        return curve.variable_at(term.samples[sample].tokens);
      });
      one += term.samples[sample].attention;
      sum += needed(layers, one, gradient_in[layers.module.index()][sample]);
    }
    return sum;
  }

  std::vector<Term> terms;
  /// Per module and sample: something before the module trains and carries rows of the sample.
  std::vector<std::vector<bool>> gradient_in;

 private:
  static Passes needed(const Layers& layers, const Passes& one, bool passed) {
    return {layers.count * one.forward,
            (layers.input_grads + (passed ? layers.input_grads_passed : 0)) * one.input_grad,
            layers.weight_grads * one.weight_grad,
            (layers.kept + (passed ? layers.kept_passed : 0)) * one.activations};
  }
};

/// Makes a `Predictor` and the layer lists it answers for.
class PredictorBuilder {
 public:
  PredictorBuilder(const CostModel& model, std::span<const SampleShape> samples,
                   std::span<const Parallelism> parallelisms)
      : model_(model), samples_(samples), parallelisms_(parallelisms) {
    const ModelGraph& graph = model.graph();
    const RowFlow flow(graph, {samples.begin(), samples.end()});
    for (std::size_t m = 0; m < graph.modules.size(); ++m) {
      const auto layers = static_cast<std::int32_t>(graph.modules[m].layers.size());
      auto& trained = first_trained_.emplace_back(0);
      while (trained < layers && !trains(graph, {ModuleId{m}, trained})) ++trained;
    }
    predictor_.gradient_in.resize(graph.modules.size());
    for (std::size_t m = 0; m < graph.modules.size(); ++m)
      for (std::size_t s = 0; s < samples.size(); ++s)
        predictor_.gradient_in[m].push_back(
            flow.wants_gradient(ModuleId{m}, 0, static_cast<std::int32_t>(s)));
  }

  /// Appends the layers of `run` to `list`. Errors: not_found.
  Status add(const LayerRun& run, std::vector<Layers>& list) {
    const ModelGraph& graph = model_.graph();
    const std::size_t first = list.size();
    for (std::int32_t index = run.layers.begin; index < run.layers.end; ++index) {
      const LayerId layer{run.module, index};
      const bool trains_here = trains(graph, layer);
      const bool trained = index > first_trained_[run.module.index()];
      auto term = find_term(layer);
      if (!term.ok()) return term.error();
      Layers& entry = entry_of(list, first, run.module, term.value());
      entry.count += 1;
      entry.weight_grads += trains_here;
      (trained ? entry.input_grads : entry.input_grads_passed) += 1;
      (trained || trains_here ? entry.kept : entry.kept_passed) += 1;
    }
    return Done{};
  }

  Predictor take() { return std::move(predictor_); }

 private:
  static Layers& entry_of(std::vector<Layers>& list, std::size_t first, ModuleId module,
                          std::size_t term) {
    for (std::size_t i = first; i < list.size(); ++i)
      if (list[i].term == term) return list[i];
    list.push_back({term, module});
    return list.back();
  }

  Result<std::size_t> find_term(LayerId layer) {
    const bool head = is_head(model_.graph(), layer);
    const auto key = std::make_tuple(layer.module, model_.kind_name(layer), head);
    if (const auto found = index_.find(key); found != index_.end()) return found->second;
    const auto m = layer.module.index();
    const auto curves =
        model_.curves(layer, m < parallelisms_.size() ? parallelisms_[m] : Parallelism{});
    if (!curves.ok()) return curves.error();
    Term term{*curves.value(), {}};
    for (const auto& sample : samples_) term.samples.push_back(sample_term(sample, layer, term));
    predictor_.terms.push_back(std::move(term));
    return index_[key] = predictor_.terms.size() - 1;
  }

  SampleTerm sample_term(const SampleShape& sample, LayerId layer, const Term& term) const {
    const ModelGraph& graph = model_.graph();
    SampleTerm made;
    if (output_rows(graph, layer.module, sample) == 0) return made;
    if (is_head(graph, layer)) return {static_cast<double>(sample.trained_tokens), {}};
    for (const TokenCount length : sequence_lengths(graph, sample, layer.module)) {
      made.tokens += static_cast<double>(length);
      made.attention += each(term.curves.attention, [&](const auto& curve) {
        return curve.at(static_cast<double>(length));
      });
    }
    return made;
  }

  const CostModel& model_;
  std::span<const SampleShape> samples_;
  std::span<const Parallelism> parallelisms_;
  std::vector<std::int32_t> first_trained_;  // Per module; its layer count where nothing trains.
  std::map<std::tuple<ModuleId, std::string, bool>, std::size_t> index_;
  Predictor predictor_;
};

/// What a stage keeps and updates, whatever the samples.
struct StageState {
  double bytes = 0;
  double elements = 0;  ///< That train.
  double groups = 0;
};

std::vector<StageState> stage_states(const ParallelPlan& plan, const PredictionOptions& options) {
  std::vector<StageState> states(plan.stages.size());
  const auto share = [&](ModuleId module) {
    const auto m = module.index();
    return m < options.parallelisms.size() ? 1.0 / options.parallelisms[m].tp : 1.0;
  };
  for (const auto& group : plan.groups)
    for (const auto& holder : group.holders) {
      StageState& state = states[holder.stage.index()];
      const double elements = static_cast<double>(group.elements) * share(holder.layer.module);
      state.elements += elements;
      state.groups += 1;
      state.bytes += elements * state_bytes_per_trained_element(options.dtype);
    }
  const double element = bytes_per_element(options.dtype);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const auto& run : plan.stages[s].runs) {
      const ModuleSpec& module = plan.model.at(run.module);
      const double part = element * share(run.module);
      for (auto layer = run.layers.begin; layer < run.layers.end; ++layer) {
        const auto& spec = module.layers[static_cast<std::size_t>(layer)];
        const auto still = spec.constant_elements + (module.freeze ? spec.parameter_elements : 0);
        states[s].bytes += part * static_cast<double>(still);
        if (!module.freeze) continue;
        for (const auto& tied : plan.model.tied)
          for (const LayerId use : tied.layers)
            if (use == LayerId{run.module, layer})
              states[s].bytes += part * static_cast<double>(tied.parameter_elements);
      }
    }
  return states;
}

double task_ms(const Passes& passes, TaskKind kind) {
  switch (kind) {
    case TaskKind::forward: return passes.forward;
    case TaskKind::backward: return passes.input_grad + passes.weight_grad;
    case TaskKind::backward_input: return passes.input_grad;
    case TaskKind::backward_weight: return passes.weight_grad;
  }
  return 0;
}

}  // namespace

double bytes_per_element(Dtype dtype) {
  return dtype == Dtype::bf16 ? 2 : dtype == Dtype::fp32 ? 4 : 8;
}

double state_bytes_per_trained_element(Dtype dtype) {
  const double wide = dtype == Dtype::fp64 ? 8 : 4;
  return bytes_per_element(dtype) + 3 * wide + (dtype == Dtype::bf16 ? wide : 0);
}

Result<std::vector<SampleWork>> sample_workloads(const CostModel& model,
                                                 std::span<const SampleShape> samples,
                                                 std::span<const Parallelism> parallelisms) {
  PredictorBuilder builder(model, samples, parallelisms);
  const ModelGraph& graph = model.graph();
  std::vector<Layers> encoder, llm;
  for (std::size_t m = 0; m < graph.modules.size(); ++m) {
    const auto& layers = graph.modules[m].layers;
    const LayerRun whole{ModuleId{m}, {0, static_cast<std::int32_t>(layers.size())}};
    auto& list = graph.modules[m].kind == ModuleKind::llm ? llm : encoder;
    if (auto added = builder.add(whole, list); !added.ok()) return added.error();
  }
  const Predictor predictor = builder.take();
  std::vector<SampleWork> works;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const Passes left = predictor.sample(encoder, s), right = predictor.sample(llm, s);
    works.push_back({left.forward, left.forward + left.input_grad + left.weight_grad, right.forward,
                     right.forward + right.input_grad + right.weight_grad});
  }
  return works;
}

Result<SimulationCosts> predicted_costs(const ParallelPlan& plan, const CostModel& model,
                                        std::span<const SampleShape> samples,
                                        const PredictionOptions& options) {
  PredictorBuilder builder(model, samples, options.parallelisms);
  const auto stages = std::make_shared<std::vector<std::vector<Layers>>>(plan.stages.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const auto& run : plan.stages[s].runs)
      if (auto added = builder.add(run, (*stages)[s]); !added.ok()) return added.error();
  const auto predictor = std::make_shared<const Predictor>(builder.take());

  SimulationCosts costs;
  costs.task_ms = [predictor, stages](StageId stage, const std::vector<std::int32_t>& part,
                                      TaskKind kind) {
    return task_ms(predictor->part((*stages)[stage.index()], part), kind);
  };
  costs.activation_bytes = [predictor, stages](StageId stage,
                                               const std::vector<std::int32_t>& part) {
    return predictor->part((*stages)[stage.index()], part).activations;
  };
  const auto states = std::make_shared<const std::vector<StageState>>(stage_states(plan, options));
  costs.state_bytes = [states](StageId stage) { return (*states)[stage.index()].bytes; };
  costs.optimizer_ms = [states, speeds = options.speeds](StageId stage) {
    const StageState& state = (*states)[stage.index()];
    const double rate = speeds.optimizer_elements_per_s / 1000;
    return state.groups * speeds.optimizer_group_ms + (rate > 0 ? state.elements / rate : 0);
  };
  costs.bytes_per_element = bytes_per_element(options.dtype);
  costs.reduce_gigabytes_per_s = options.speeds.reduce_gigabytes_per_s;
  costs.device = options.speeds.device;
  costs.node = options.speeds.node;
  costs.network = options.speeds.network;
  return costs;
}

MessageCost message_costs(const ParallelPlan& plan, const SimulationCosts& costs) {
  return [&plan, element = costs.bytes_per_element, device = costs.device, node = costs.node,
          network = costs.network](const Message& message) {
    const DeviceId from = plan.at(message.source.stage).devices.front();
    const DeviceId to = plan.at(message.destination.stage).devices.front();
    const bool same_node = plan.devices[from.index()].node == plan.devices[to.index()].node;
    const LinkSpeed& link = from == to ? device : same_node ? node : network;
    const double bytes =
        static_cast<double>(message.rows) * static_cast<double>(message.width) * element;
    return link.latency_ms + (link.gigabytes_per_s > 0 ? bytes / (link.gigabytes_per_s * 1e6) : 0);
  };
}

}  // namespace troupe::scheduler
