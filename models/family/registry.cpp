#include "models/family/registry.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/family/built_in.hpp"
#include "models/family/guarded_family.hpp"
#include "models/family/widths.hpp"
#include "runtime/vocabulary/named_list.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::models {

namespace {

std::string kind_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::encoder: return "encoder";
    case ModuleKind::projector: return "projector";
    case ModuleKind::llm: return "llm";
    case ModuleKind::teacher: return "teacher";
  }
  return "?";
}

NamedList<Family>& registry() {
  static NamedList<Family> all(built_in_families());
  return all;
}

std::string family_names() {
  std::string names;
  for (const auto* family : families()) names += (names.empty() ? "" : ", ") + family->name;
  return names;
}

Error refused(const Family& family, const std::string& message, const std::string& fix) {
  return {Errc::invalid_argument, "family '" + family.name + "': " + message, {}, fix};
}

/// A member that is not there, or nullptr.
const char* missing_member(const Family& family) {
  if (family.defaults == FamilyConfig{}) return "defaults";
  if (!family.fields) return "fields";
  if (!family.sizes) return "sizes";
  if (!family.describe) return "describe";
  if (!family.works) return "works";
  if (family.kind == ModuleKind::encoder && !family.media) return "media";
  if (!family.make) return "make";
  return nullptr;
}

/// Whether planners can count with it: figures are finite, and none is below zero.
bool is_countable(const LayerWork& work) {
  const auto fine = [](double x) { return std::isfinite(x) && x >= 0; };
  const AttentionShape attention = work.attention.value_or(AttentionShape{});
  return fine(work.weights) && fine(work.used_weights) && fine(work.entry_weights) &&
         fine(work.activation_elements) && work.width >= 0 && work.logits >= 0 &&
         attention.heads >= 0 && attention.kv_heads >= 0 && attention.head_dim >= 0;
}

/// What is wrong with the costs of a module's layers; empty: all well.
std::string works_fault(const std::string& module, const std::vector<LayerWork>& works) {
  for (const auto& work : works) {
    if (!work.kind.starts_with(module + ".") || work.joined_rows < 1)
      return "the work of a layer is of kind '" + work.kind +
             "'; a kind begins with the module's name and a dot, and joins one row at least";
    if (!is_countable(work))
      return "the work of kind '" + work.kind +
             "' has a figure that is below zero or not finite; `works` counts elements";
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

/// What a description and other answers for one configuration say against each other; empty: they
/// agree.
std::string contradiction(const Family& family, const ModuleConfig& module, const Widths& widths,
                          const ModuleDescription& description) {
  const auto sizes = family.sizes(module.config);
  const auto layers = static_cast<std::size_t>(std::max(0, sizes.layers));
  const auto works = family.works(module, widths);
  if (layers == 0 || description.layers.size() != layers || works.size() != layers)
    return "`sizes` says " + std::to_string(layers) + " layers, `describe` lists " +
           std::to_string(description.layers.size()) + " and `works` " +
           std::to_string(works.size());
  std::set<std::string> names;
  for (const auto& layer : description.layers)
    for (const auto& parameter : layer.parameters) {
      if (!parameter.name.starts_with(module.name + ".") || parameter.elements() < 1)
        return "a parameter is called '" + parameter.name + "' and has " +
               std::to_string(parameter.elements()) +
               " elements; its name begins with the module's and a dot";
      if (!names.insert(parameter.name).second && !parameter.tied_use)
        return "two parameters are called '" + parameter.name + "', and the second is no tied use";
      if (parameter.split.by != TensorSplit::By::none && parameter.shape.size() != 2)
        return "'" + parameter.name + "' is split over ranks, but no matrix";
    }
  if (auto fault = own_update_fault(family, description); !fault.empty()) return fault;
  if (auto fault = works_fault(module.name, works); !fault.empty()) return fault;
  const auto output = sizes.output_width > 0 ? sizes.output_width : widths.output;
  if (module.kind != ModuleKind::llm && description.output_width != output)
    return "rows of " + std::to_string(output) + " columns are handed on by `sizes`, of " +
           std::to_string(description.output_width) + " by `describe`";
  return {};
}

/// Whether bytes become numbers by it that tell which bytes they were.
bool is_scale(const PixelScale& scale) {
  return std::ranges::all_of(scale.mean, [](double x) { return std::abs(x) <= 1000; }) &&
         std::ranges::all_of(scale.deviation, [](double x) { return x >= 1e-6 && x <= 1e6; });
}

/// What is wrong with the size that an encoder takes pictures in; empty: all well.
std::string resize_fault(const VisionInput& vision) {
  const std::int32_t side = vision.resize.side;
  constexpr std::int32_t kSideMax = 8192;  // 200 MB of pixels.
  if (!vision.resize.is_fixed())
    return side == 0 ? "" : "`media` has a `resize.side`, but resizes by area: set `resize.mode`";
  if (side >= vision.factor() && side <= kSideMax) return {};
  return "`media` resizes to squares of " + std::to_string(side) + " pixels, outside " +
         std::to_string(vision.factor()) + " (one merged patch) to " + std::to_string(kSideMax);
}

/// What no encoder can make of its media; empty: all well.
std::string media_contradiction(const Family& family, const FamilyConfig& config) {
  if (family.kind != ModuleKind::encoder) return {};
  const auto media = family.media(config);
  const auto& vision = media.vision;
  const auto& audio = media.audio;
  if (media.medium == Medium::none) return "`media` names no medium";
  const bool sees = vision.patch_size > 0 && vision.merge_size > 0 &&
                    vision.temporal_patch_size > 0 && vision.rows_per_image >= 0;
  const bool hears = audio.mel_bins > 0 && audio.mel_bins <= 201 && audio.frames_per_row > 0 &&
                     audio.pooled_rows > 0 && audio.rows_per_window >= 0;
  if (!sees || !hears) return "`media` has a size that is not positive, or over 201 mel bins";
  if (!is_scale(vision.scale))
    return "`media` has a scale of pixels with a mean outside -1000 to 1000, or a deviation "
           "outside "
           "1e-6 to 1e6";
  return resize_fault(vision);
}

/// The family's description of a module, where its other answers agree with it; else what they say
/// against each other, or the words of one that throws. The message names the family.
Result<ModuleDescription> agreed_description(const Family& family, const ModuleConfig& module,
                                             const Widths& widths) {
  const auto refuse = [&](const std::string& fault) { return refused(family, fault, {}); };
  try {
    if (auto fault = media_contradiction(family, module.config); !fault.empty())
      return refuse(fault);
    auto description = family.describe(module, widths);
    if (auto fault = contradiction(family, module, widths, description); !fault.empty())
      return refuse(fault);
    return description;
  } catch (const UserFault& fault) {
    return fault.error();
  }
}

/// Whether the answers for the defaults agree with each other.
Status check_answers(const Family& family) {
  ModuleConfig module;
  module.name = "module", module.kind = family.kind, module.family = family.name;
  module.config = family.defaults;
  if (const auto problems = problems_of(family, module.config); !problems.empty())
    return refused(family, "its defaults are refused: " + problems.front().message,
                   "correct `defaults` or `problems`");
  if (const auto agreed = agreed_description(family, module, {64, 128}); !agreed.ok())
    return Error{agreed.error().code, agreed.error().message, {}, "let its answers agree"};
  return Done{};
}

}  // namespace

Status register_family(Family family) {
  if (!is_list_name(family.name))
    return refused(family, "no name for a job file", "use small letters, digits, `-` and `_`");
  if (const auto* member = missing_member(family))
    return refused(family, std::string("`") + member + "` is not set", "set it");
  family = guarded(std::move(family));
  try {
    if (auto checked = check_answers(family); !checked.ok()) return checked;
  } catch (const UserFault& fault) {
    return fault.error();
  }
  const auto name = family.name;
  if (!registry().add(std::move(family)))
    return Error{Errc::invalid_argument,
                 "there is a family '" + name + "' already",
                 {},
                 "choose another name, or register it once"};
  return Done{};
}

std::vector<const Family*> families() { return registry().all(); }

const Family* find_family(const std::string& name) { return registry().find(name); }

Error config_error(const ModuleConfig& module, std::string field, std::string message,
                   std::string fix) {
  return {Errc::invalid_argument, std::move(message), "modules." + module.name + "." + field,
          std::move(fix)};
}

Result<const Family*> family_of(const ModuleConfig& module) {
  const auto* family = find_family(module.family);
  if (family == nullptr)
    return config_error(module, "family", "there is no family '" + module.family + "'",
                        "choose one of " + family_names());
  if (family->kind != module.kind)
    return config_error(module, "kind",
                        "family '" + module.family + "' is of kind '" + kind_name(family->kind) +
                            "', not '" + kind_name(module.kind) + "'",
                        "set kind = \"" + kind_name(family->kind) + "\"");
  if (!module.config.is_like(family->defaults))
    return config_error(module, "config",
                        "these are not the fields of family '" + module.family + "'",
                        "give the fields of that family, or another family");
  return family;
}

const Family& checked_family(const ModuleConfig& module) { return *find_family(module.family); }

MediaInput media_input(const ModuleConfig& module) {
  if (module.kind != ModuleKind::encoder) return {};
  const auto family = family_of(module);
  return family ? family.value()->media(module.config) : MediaInput{};
}

Result<ModuleDescription> describe_module(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all) {
  const auto family = family_of(module);
  if (!family) return family.error();
  for (const auto& problem : problems_of(*family.value(), module.config))
    if (!problem.only_with_data)
      return config_error(module, "config." + problem.key, problem.message, problem.fix);
  const auto widths = widths_around(module, all);
  const auto input = input_width(module, all), output = output_width(module, all);
  if (module.kind == ModuleKind::projector && (input < 1 || output < 1))
    return config_error(module, "config",
                        "the projector takes rows of " + std::to_string(input) +
                            " columns and hands on " + std::to_string(output) +
                            "; both must be at least 1",
                        "set `next` of the encoder before it to this module, or give the widths");
  auto agreed = agreed_description(*family.value(), module, widths);
  if (agreed.ok()) return agreed;
  return config_error(module, "family", agreed.error().message,
                      "correct the family for this configuration");
}

std::vector<LayerWork> module_works(const ModuleConfig& module,
                                    const std::vector<ModuleConfig>& all) {
  return checked_family(module).works(module, widths_around(module, all));
}

}  // namespace troupe::models
