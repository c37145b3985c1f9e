// The model as planners see it: modules, their layers, and who feeds whom. No tensors.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/sum_order.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// What a module is for. A teacher is frozen and reads the text of every sample; its rows enter the
/// llm's last layer, which learns from them (distillation).
enum class ModuleKind : std::uint8_t { encoder, projector, llm, teacher };

/// Whether a module's input is the text of a sample, not media or rows of another module.
inline bool reads_text(ModuleKind kind) {
  return kind == ModuleKind::llm || kind == ModuleKind::teacher;
}

/// Which tokens of a sample see each other in the llm: `modules.NAME.attention`.
enum class AttentionRule : std::uint8_t {
  causal,    ///< Each sees itself and all before it, rows of media as text does.
  modality,  ///< So text does; rows of a picture or sound see all of it and nothing else
             ///< (Cornstarch section 3.4.2).
};

/// Half-open range of layers of one module, [begin, end).
struct LayerRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;

  std::int32_t size() const { return end - begin; }  ///< Layers in it.
  friend auto operator<=>(const LayerRange&, const LayerRange&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LayerRange& x) {
    return f(x.begin, x.end);
  }
};

/// Elements of matrices that tensor-parallel ranks share, by how finely they can be cut.
struct SplitElements {
  std::int64_t elements = 0;
  /// Pieces that may not be cut, as heads; ranks beyond their number keep the same ones. 0: any.
  std::int64_t parts = 0;

  friend auto operator<=>(const SplitElements&, const SplitElements&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SplitElements& x) {
    return f(x.elements, x.parts);
  }
};

/// Elements that the fullest of `tp` ranks keeps of `elements`, of which `splits` are shared and
/// the rest is kept by all.
inline std::int64_t split_over(std::int64_t elements, const std::vector<SplitElements>& splits,
                               std::int32_t tp) {
  const auto up = [](std::int64_t count, std::int64_t by) { return (count + by - 1) / by; };
  for (const SplitElements& split : splits)
    elements += (split.parts == 0 ? up(split.elements, tp)
                                  : split.elements / split.parts * up(split.parts, tp)) -
                split.elements;
  return elements;
}

/// One layer: the smallest unit of partition, of reduction and of copying.
struct LayerSpec {
  std::string name;  ///< `llm.layers.3`, `vision.merger`; unique in the model.
  /// Own parameters that train unless the module is frozen; without a tensor tied from elsewhere.
  std::int64_t parameter_elements = 0;
  std::int64_t constant_elements = 0;      ///< Stored with the parameters, never trained.
  std::vector<SplitElements> splits = {};  ///< Of `parameter_elements`; by parts.
  /// That a stage holds for it all the time, on each of its devices, beside parameters, gradients
  /// and moments: what its kind states.
  std::int64_t held_bytes = 0;

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LayerSpec& x) {
    return f(x.name, x.parameter_elements, x.constant_elements, x.splits, x.held_bytes);
  }
};

/// A module of the model. Layers include its first and last special ones: an encoder's embedding
/// and merger, the language model's token embedding (first) and norm + head (last).
struct ModuleSpec {
  std::string name;  ///< As in the job file: `vision`, `audio_projector`, `llm`.
  ModuleKind kind = ModuleKind::llm;
  bool freeze = false;
  std::vector<ModuleId> next;  ///< Where the output goes; empty for the llm.
  std::vector<LayerSpec> layers;
  std::int64_t hidden_width = 0;  ///< Columns of the rows between two of its layers.
  std::int64_t output_width = 0;  ///< Columns of the rows it hands to `next`.
  AttentionRule attention = AttentionRule::causal;  ///< Of the llm; others go by their own.
  /// Masters and moments of its parameters are in host memory, but for their update.
  bool moments_in_host = false;
  /// Its parameters are there while a device of its stages computes something else.
  bool parameters_in_host = false;

  friend bool operator==(const ModuleSpec&, const ModuleSpec&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ModuleSpec& x) {
    return f(x.name, x.kind, x.freeze, x.next, x.layers, x.hidden_width, x.output_width,
             x.attention, x.moments_in_host, x.parameters_in_host);
  }
};

/// A layer of the model by module and index.
struct LayerId {
  ModuleId module;
  std::int32_t layer = -1;

  friend auto operator<=>(const LayerId&, const LayerId&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, LayerId& x) {
    return f(x.module, x.layer);
  }
};

/// One logical parameter used by two layers (an embedding and the head tied to it).
struct TiedParameter {
  std::string name;                        ///< Full parameter name, that of its first use.
  std::vector<LayerId> layers;             ///< Users in execution order.
  std::int64_t parameter_elements = 0;     ///< Counted here, not in the layers.
  std::vector<SplitElements> splits = {};  ///< Of `parameter_elements`.

  friend bool operator==(const TiedParameter&, const TiedParameter&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, TiedParameter& x) {
    return f(x.name, x.layers, x.parameter_elements, x.splits);
  }
};

/// The whole model. Modules stand in topological order; exactly one is the llm, and it is last.
struct ModelGraph {
  std::vector<ModuleSpec> modules;
  std::vector<TiedParameter> tied;
  /// How a job wants gradients added up: by NCCL, or by messages (`chain`; layouts may take trees).
  /// What a layout makes of it stands in its groups.
  SumOrder sums = SumOrder::chain;

  const ModuleSpec& at(ModuleId id) const { return modules[id.index()]; }  ///< REQUIRES: it is.
  /// The module of this name, or an invalid id.
  ModuleId find(const std::string& name) const {
    for (std::size_t i = 0; i < modules.size(); ++i)
      if (modules[i].name == name) return ModuleId{i};
    return ModuleId{};
  }
  ModuleId llm() const { return ModuleId{modules.size() - 1}; }  ///< REQUIRES: modules.

  friend bool operator==(const ModelGraph&, const ModelGraph&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ModelGraph& x) {
    return f(x.modules, x.tied, x.sums);
  }
};

/// The layer of `to` that takes the rows of `from`, one of the modules before it: the llm's last
/// one those of a teacher, else the first.
std::int32_t entry_layer(const ModelGraph& graph, ModuleId from, ModuleId to);

/// Parameters of a module, tied ones once, at the layer that uses them first.
struct ModuleElements {
  std::int64_t all = 0;      ///< That are stored, constants too.
  std::int64_t trained = 0;  ///< 0 where the module is frozen.
};

ModuleElements module_elements(const ModelGraph& graph, ModuleId module);  ///< Cost: O(layers).

/// Elements of tied parameters that this layer is the first to use; `LayerSpec` does not count
/// them.
std::int64_t tied_elements_begun(const ModelGraph& graph, LayerId layer);

/// True if this layer has parameters, its own or tied ones, and its module is not frozen.
bool trains(const ModelGraph& graph, LayerId layer);

/// True if anything trainable lies strictly before `layer` on any path into it, so that its input
/// needs a gradient. A frozen encoder with a trainable layer before it in another module counts
/// (Cornstarch, eq. 3.3, with the correction noted in cases.md).
bool needs_input_gradient(const ModelGraph& graph, LayerId layer);

/// True if a backward pass through `layer` has anything to do: it is trainable, or something
/// before it is.
bool needs_backward(const ModelGraph& graph, LayerId layer);

}  // namespace troupe
