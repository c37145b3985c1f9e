// Predicts what any layer of a model costs for any microbatch, packed or not.
//
// Attention and the rest are kept apart: a packed microbatch of lengths l_i costs
// linear(sum l_i) + sum attention(l_i), because attention depends on each sequence's own length and
// its kernels run once per sequence.
// Pure; immutable after `create`, hence thread-safe.

#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_curve.hpp"
#include "scheduler/cost/layer_cost.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::scheduler {

/// Fit quality of the worst curve (times, bytes) of one kind at one (tp, cp), for `troupe profile`.
struct KindError {
  std::string kind;
  std::vector<ModuleId> modules;  ///< That have layers of this kind.
  Parallelism parallelism;
  std::string curve;  ///< Which one it is, as shown to users: `forward`, `attention forward`.
  FitError fit;       ///< Of the bare quadratic on its own points, the same curve's.
  FitError left_out;  ///< Of the curve on points left out.
};

/// What is known about one part of a kind of layer, over tokens.
struct PartCurves {
  CostCurve forward, input_grad, weight_grad, activations;
};

/// One kind of layer at one (tp, cp): linear part over a microbatch's tokens, attention over each
/// sequence's.
struct KindCurves {
  PartCurves linear, attention;
  Bytes parameters;  ///< This device's share.
  CostOrigin origin = CostOrigin::measured;
};

class CostModel {
 public:
  /// Fits all curves of `profile` for the layers of `graph`.
  ///
  /// Errors:
  /// - not_found: a layer has no kind, or its kind no profile at tp 1, cp 1; the message names it.
  /// - invalid_argument: a point is not a finite number >= 0 (which kind, which tokens).
  static Result<CostModel> create(const ModelGraph& graph, const Profile& profile);

  /// Cost of `layer` for one microbatch with sequences of these lengths (>= 0 each), before
  /// freezing is taken into account (see `frozen_aware`). Zero for a microbatch without tokens.
  /// `attention_share`: what times of attention are multiplied by. Cost: O(lengths).
  ///
  /// Errors:
  /// - not_found: no profile at this (tp, cp); the message names those there are.
  Result<LayerCost> cost(LayerId layer, std::span<const TokenCount> lengths,
                         Parallelism parallelism = {}, double attention_share = 1) const;

  /// The same for one sequence.
  Result<LayerCost> cost(LayerId layer, TokenCount tokens, Parallelism parallelism = {}) const;

  /// Which kind a layer is. Layers of a kind cost the same for the same rows.
  const std::string& kind_name(LayerId layer) const {
    return kind_names_[layer.module.index()][static_cast<std::size_t>(layer.layer)];
  }

  /// The curves behind `cost`, for callers that sum over many samples. The pointer lives as long as
  /// this model. Errors: as `cost`.
  Result<const KindCurves*> curves(LayerId layer, Parallelism parallelism = {}) const;

  /// Costs of all layers of a module for one microbatch, frozen-aware; times of its attention are
  /// multiplied by `attention_share`.
  Result<std::vector<LayerCost>> module_costs(ModuleId module, std::span<const TokenCount> lengths,
                                              Parallelism parallelism = {},
                                              double attention_share = 1) const;

  /// Valid (tp, cp) of a module: those that every one of its layers has a profile for, ascending.
  std::vector<Parallelism> parallelisms(ModuleId module) const;

  /// Origin of a module's numbers; `computed` if any of them is, else `modelled` if any is.
  CostOrigin origin(ModuleId module) const;

  /// One entry per kind and (tp, cp), by name. Of curves that are equally bad the first is named.
  std::vector<KindError> errors() const;
  const ModelGraph& graph() const { return graph_; }
  /// How layouts by this model add gradients up. No layer's cost depends on it.
  void set_sums(SumOrder sums) { graph_.sums = sums; }

 private:
  using Kind = std::map<Parallelism, KindCurves>;

  static Result<PartCurves> fit_part(const LayerProfile& profile, PartCost ProfilePoint::*part);
  const Kind& kind(LayerId layer) const;
  std::vector<ModuleId> modules_with(const std::string& kind) const;

  ModelGraph graph_;
  std::map<std::string, Kind> kinds_;
  std::vector<std::vector<std::string>> kind_names_;  // Per module, per layer.
};

/// Lengths of the sequences that `module` sees for one sample: rows of each media item between an
/// encoder's layers, all rows of a sample at a projector, the whole sequence at the llm. Empty if
/// the sample has nothing for the module.
std::vector<TokenCount> sequence_lengths(const ModelGraph& graph, const SampleShape& sample,
                                         ModuleId module);

/// What attention over one sample takes in `module` of what it takes over as many tokens of text,
/// which is what a profile measured: the pairs that see each other over those of text, as the
/// kernel's time follows pairs. 1 where media change nothing: in encoders, and in an llm whose
/// attention is causal. Between 0 and 2. Bytes that attention keeps follow tokens, not pairs.
double attention_share(const ModelGraph& graph, const SampleShape& sample, ModuleId module);

/// True for the llm's last layer, which works on trained tokens alone.
bool is_head(const ModelGraph& graph, LayerId layer);

}  // namespace troupe::scheduler
