#include "models/family/answer_faults.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace troupe::models {

namespace {

/// Of one parameter: 2 PiB in fp64, and far from where counts of a model's bytes end.
constexpr std::int64_t kElementsMax = std::int64_t{1} << 48;

/// Of a picture, in pixels: 200 MB of them. No patch is larger.
constexpr std::int32_t kSideMax = 8192;

/// Of merged patches, in pixels a side, and of a patch in columns: both are counted in 32 bits.
constexpr std::int64_t kSquareMax = 1 << 16;
constexpr std::int64_t kColumnsMax = std::numeric_limits<std::int32_t>::max();

/// Whether a name is the module's, a dot and something more.
bool is_name_in(const std::string& module, const std::string& name) {
  return name.size() > module.size() + 1 && name.starts_with(module + ".");
}

/// The first figure of a layer's work that planners cannot count with, as `weights = -1.000000`;
/// empty: there is none.
std::string uncountable(const LayerWork& work) {
  static constexpr std::pair<double LayerWork::*, const char*> kElements[] = {
      {&LayerWork::weights, "weights"},
      {&LayerWork::used_weights, "used_weights"},
      {&LayerWork::entry_weights, "entry_weights"},
      {&LayerWork::activation_elements, "activation_elements"}};
  static constexpr std::pair<std::int64_t LayerWork::*, const char*> kCounts[] = {
      {&LayerWork::width, "width"}, {&LayerWork::logits, "logits"}};
  for (const auto& [figure, name] : kElements)
    if (const double value = work.*figure; !std::isfinite(value) || value < 0)
      return name + (" = " + std::to_string(value));
  for (const auto& [figure, name] : kCounts)
    if (work.*figure < 0) return name + (" = " + std::to_string(work.*figure));
  return work.joined_rows < 1 ? "joined_rows = " + std::to_string(work.joined_rows) : "";
}

/// Whether there is such attention. Key heads are what tensor-parallel ranks share.
bool is_attention(const AttentionShape& shape) {
  return shape.heads >= 1 && shape.kv_heads >= 1 && shape.head_dim >= 1 &&
         shape.heads % shape.kv_heads == 0;
}

/// What is wrong with the work of one layer; empty: all well.
std::string work_fault(const std::string& module, const LayerWork& work) {
  if (!is_name_in(module, work.kind))
    return "the work of a layer is of kind '" + work.kind +
           "'; a kind begins with the module's name and a dot";
  const std::string of = "the work of kind '" + work.kind + "' has ";
  if (const std::string figure = uncountable(work); !figure.empty())
    return of + figure +
           "; figures of `works` are finite and not below zero, and one row is joined at least";
  if (work.entry_weights > work.used_weights)
    return of + "entry_weights = " + std::to_string(work.entry_weights) +
           " and used_weights = " + std::to_string(work.used_weights) + ", which those are some of";
  if (const auto& shape = work.attention; shape && !is_attention(*shape))
    return of + std::to_string(shape->heads) + " heads of " + std::to_string(shape->head_dim) +
           " columns and " + std::to_string(shape->kv_heads) +
           " key-value heads; each is 1 at least, and the last divides the first";
  return {};
}

/// What is wrong with the costs of a module's layers; empty: all well.
std::string works_fault(const std::string& module, const std::vector<LayerWork>& works) {
  for (const auto& work : works) {
    if (auto fault = work_fault(module, work); !fault.empty()) return fault;
    // Computed costs are looked up by the kind, and one layer of a kind is measured for all.
    if (!(*std::ranges::find(works, work.kind, &LayerWork::kind) == work))
      return "two layers of kind '" + work.kind +
             "' have other costs than each other; layers of one kind cost the same";
  }
  return {};
}

/// What is wrong with the parameters that a family moves itself; empty: all well.
std::string own_update_fault(const Family& family, const ModuleDescription& description) {
  std::set<std::string> own;
  for (const auto& layer : description.layers)
    for (const auto& parameter : layer.parameters) {
      const bool is_tied = parameter.tied_use && own.contains(parameter.name);
      if (!parameter.own_update && !is_tied) continue;
      own.insert(parameter.name);
      const std::string moved = "'" + parameter.name + "' is moved by the family itself, ";
      if (!family.update) return moved + "and `update` is not set";
      // A rule sees one whole parameter and one sum.
      if (parameter.tied_use) return moved + "and no such parameter has a tied use";
      if (parameter.split.by != TensorSplit::By::none)
        return moved + "and no such parameter is split over ranks";
      if (parameter.initial == Initial::sinusoid) return moved + "and is a constant";
    }
  return {};
}

/// Whether there are such tensors: sides of 1 or more, and elements that can be counted.
bool is_shape(const std::vector<std::int64_t>& shape) {
  std::int64_t room = kElementsMax;
  for (const std::int64_t side : shape) {
    if (side < 1 || side > room) return false;
    room /= side;
  }
  return true;
}

/// `64 x 128`; `one number` where there are no sides.
std::string shape_words(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t side : shape) text += (text.empty() ? "" : " x ") + std::to_string(side);
  return text.empty() ? "one number" : text;
}

/// What is wrong with the parameters of a module, each by itself; empty: all well.
std::string parameters_fault(const std::string& module, const ModuleDescription& description) {
  std::set<std::string> names;
  for (const auto& layer : description.layers)
    for (const auto& parameter : layer.parameters) {
      if (!is_name_in(module, parameter.name))
        return "a parameter is called '" + parameter.name +
               "'; its name begins with the module's and a dot";
      if (!is_shape(parameter.shape))
        return "'" + parameter.name + "' has the shape " + shape_words(parameter.shape) +
               "; sides are 1 at least, and elements " + std::to_string(kElementsMax) + " at most";
      if (!names.insert(parameter.name).second && !parameter.tied_use)
        return "two parameters are called '" + parameter.name + "', and the second is no tied use";
      if (parameter.split.by != TensorSplit::By::none && parameter.shape.size() != 2)
        return "'" + parameter.name + "' is split over ranks, but no matrix";
    }
  return {};
}

/// What is wrong with second uses of parameters; empty: all well.
std::string tied_fault(const ModuleDescription& description) {
  std::map<std::string, const ParameterSpec*> before;  // Of layers before.
  for (const auto& layer : description.layers) {
    for (const auto& parameter : layer.parameters) {
      if (!parameter.tied_use) continue;
      const auto first = before.find(parameter.name);
      const std::string use = "'" + parameter.name + "' is a tied use";
      if (first == before.end()) return use + ", and no layer before has that parameter";
      if (first->second->shape != parameter.shape)
        return use + " of the shape " + shape_words(parameter.shape) + ", of a parameter of " +
               shape_words(first->second->shape);
      // Both are drawn, by their name.
      if (first->second->initial != parameter.initial)
        return use + " that begins with other values than the parameter does";
    }
    for (const auto& parameter : layer.parameters) before.emplace(parameter.name, &parameter);
  }
  return {};
}

/// What is wrong with the names of layers, by which profiles know them; empty: all well.
std::string layers_fault(const std::string& module, const ModuleDescription& description) {
  std::set<std::string> names;
  for (const auto& layer : description.layers) {
    if (!is_name_in(module, layer.name))
      return "a layer is called '" + layer.name + "'; its name begins with the module's and a dot";
    if (!names.insert(layer.name).second) return "two layers are called '" + layer.name + "'";
  }
  return {};
}

/// What is wrong with the columns of the rows that a module takes, has and hands on; empty: all
/// well.
std::string columns_fault(const ModuleConfig& module, const ModuleSizes& sizes,
                          const Widths& widths, const ModuleDescription& description) {
  const bool is_llm = module.kind == ModuleKind::llm;
  if (sizes.input_width < 0)
    return "`sizes` says input_width = " + std::to_string(sizes.input_width) +
           "; it is 0 where it is that of the rows that come";
  if (sizes.output_width < 0 || (is_llm && sizes.output_width == 0))
    return "`sizes` says output_width = " + std::to_string(sizes.output_width) +
           "; it is an llm's own, and of other modules 0 where it is the llm's";
  // A single layer has no rows inside its module.
  if (description.hidden_width < 1 && (is_llm || description.layers.size() > 1))
    return "`describe` says hidden_width = " + std::to_string(description.hidden_width) +
           "; rows between two layers have a column at least";
  const auto output = sizes.output_width > 0 ? sizes.output_width : widths.output;
  if (!is_llm && description.output_width != output)
    return "rows of " + std::to_string(output) + " columns are handed on by `sizes`, of " +
           std::to_string(description.output_width) + " by `describe`";
  return {};
}

/// The scale of pixels by which bytes become no numbers that tell which bytes they were; empty:
/// they do.
std::string scale_fault(const PixelScale& scale) {
  for (const double mean : scale.mean)
    if (!(std::abs(mean) <= 1000))
      return "`media` scales pixels by a mean of " + std::to_string(mean) +
             ", outside -1000 to 1000";
  for (const double deviation : scale.deviation)
    if (!(deviation >= 1e-6 && deviation <= 1e6))
      return "`media` scales pixels by a deviation of " + std::to_string(deviation) +
             ", outside 1e-6 to 1e6";
  return {};
}

/// The first size that no media can be cut by; empty: there is none.
std::string size_fault(const VisionInput& vision, const AudioInput& audio) {
  struct Size {
    const char* name;
    std::int64_t value, min, max;
  };
  constexpr std::int64_t kFrames = 3000;          // Of a window.
  constexpr std::int64_t kRowsMax = 1'000'000;    // Of one item; no llm has room for more.
  constexpr std::int64_t kMelBinsMax = 201;       // Frequencies of a frame.
  constexpr std::int64_t kPictureFramesMax = 64;  // That a picture is repeated to.
  for (const auto& [name, value, min, max] :
       {Size{"vision.patch_size", vision.patch_size, 1, kSideMax},
        Size{"vision.merge_size", vision.merge_size, 1, kSideMax},
        Size{"vision.temporal_patch_size", vision.temporal_patch_size, 1, kPictureFramesMax},
        Size{"vision.rows_per_image", vision.rows_per_image, 0, kRowsMax},
        Size{"audio.mel_bins", audio.mel_bins, 1, kMelBinsMax},
        Size{"audio.frames_per_row", audio.frames_per_row, 1, kFrames},
        Size{"audio.pooled_rows", audio.pooled_rows, 1, kFrames},
        Size{"audio.rows_per_window", audio.rows_per_window, 0, kRowsMax}})
    if (value < min || value > max)
      return std::string("`media` has ") + name + " = " + std::to_string(value) + ", outside " +
             std::to_string(min) + " to " + std::to_string(max);
  const std::int64_t square = std::int64_t{vision.patch_size} * vision.merge_size;
  if (square > kSquareMax)
    return "`media` merges patches to squares of " + std::to_string(square) + " pixels, above " +
           std::to_string(kSquareMax);
  const std::int64_t columns =
      std::int64_t{3} * vision.temporal_patch_size * vision.patch_size * vision.patch_size;
  if (columns > kColumnsMax)
    return "`media` cuts patches of " + std::to_string(columns) + " columns, above " +
           std::to_string(kColumnsMax);
  return {};
}

/// What is wrong with the size that an encoder takes pictures in; empty: all well.
std::string resize_fault(const VisionInput& vision) {
  const std::int32_t side = vision.resize.side;
  if (!vision.resize.is_fixed())
    return side == 0 ? "" : "`media` has a `resize.side`, but resizes by area: set `resize.mode`";
  if (side >= vision.factor() && side <= kSideMax) return {};
  return "`media` resizes to squares of " + std::to_string(side) + " pixels, outside " +
         std::to_string(vision.factor()) + " (one merged patch) to " + std::to_string(kSideMax);
}

}  // namespace

std::string answers_fault(const Family& family, const ModuleConfig& module, const Widths& widths,
                          const ModuleDescription& description) {
  const auto sizes = family.sizes(module.config);
  const auto layers = static_cast<std::size_t>(std::max(0, sizes.layers));
  const auto works = family.works(module, widths);
  if (layers == 0 || description.layers.size() != layers || works.size() != layers)
    return "`sizes` says " + std::to_string(sizes.layers) + " layers, `describe` lists " +
           std::to_string(description.layers.size()) + " and `works` " +
           std::to_string(works.size());
  if (auto fault = parameters_fault(module.name, description); !fault.empty()) return fault;
  if (auto fault = own_update_fault(family, description); !fault.empty()) return fault;
  if (auto fault = tied_fault(description); !fault.empty()) return fault;
  if (auto fault = layers_fault(module.name, description); !fault.empty()) return fault;
  if (auto fault = works_fault(module.name, works); !fault.empty()) return fault;
  return columns_fault(module, sizes, widths, description);
}

std::string media_fault(const Family& family, const FamilyConfig& config) {
  if (family.kind != ModuleKind::encoder) return {};
  const auto media = family.media(config);
  if (media.medium == Medium::none) return "`media` names no medium";
  if (auto fault = size_fault(media.vision, media.audio); !fault.empty()) return fault;
  if (auto fault = scale_fault(media.vision.scale); !fault.empty()) return fault;
  return resize_fault(media.vision);
}

}  // namespace troupe::models
