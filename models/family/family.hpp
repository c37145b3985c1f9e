// A model family: all that the rest of the product knows of it. The reader of job files, planners,
// data, profiles and the engine ask this one value; none of them knows a family by name.
//
// A family is made of pure functions of its configuration, and of `make`, which is the only one to
// touch tensors. No LibTorch here: planners link this.
//
// Does not hold: how a layer computes (models/layer.hpp).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/description.hpp"
#include "runtime/vocabulary/layer_work.hpp"
#include "runtime/vocabulary/media_input.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::models {

class Layer;
struct Parameter;
struct ParameterUpdate;

/// Walks the keys of `[modules.NAME.config]`: reading, writing, defaults and checks of ranges all
/// come by. Ranges are closed.
class ConfigFields {
 public:
  virtual ~ConfigFields() = default;
  virtual void flag(const char* key, bool& value) = 0;  ///< true or false.
  virtual void integer(const char* key, std::int32_t& value, std::int64_t min,
                       std::int64_t max) = 0;  ///< A whole number.
  virtual void number(const char* key, double& value, double min, double max) = 0;  ///< Finite.
  /// One of these words.
  virtual void word(const char* key, std::string& value, const std::vector<std::string>& words) = 0;
};

/// A size that fits no other: which key of the configuration, why, and what to write instead.
struct ConfigProblem {
  std::string key;
  std::string message;
  std::string fix;
  /// The model is sound; it is the product's data that do not fit it.
  bool only_with_data = false;
};

/// Columns that follow from a module's neighbours; 0 where there is none.
struct Widths {
  std::int64_t input = 0;   ///< Of the rows that the module before hands on.
  std::int64_t output = 0;  ///< Of the rows that the llm takes.
};

/// What a configuration says of the rows that come and go.
struct ModuleSizes {
  std::int32_t layers = 1;        ///< Special first and last ones included.
  std::int64_t input_width = 0;   ///< Columns it takes; 0: those that come. Encoders take none.
  std::int64_t output_width = 0;  ///< Columns it hands on, or that the llm takes; 0: the llm's.
  std::int64_t vocabulary = 0;    ///< Of an llm: token ids it knows.
};

/// Everything about a family. All functions are called with a configuration of the type of
/// `defaults`, from any thread: who has members for a type of his own sets these too, or is refused
/// (`FamilyConfig::as`). Where one is not set, it has nothing to say.
struct Family {
  std::string name = {};  ///< As in the job file: `modules.NAME.family`.
  ModuleKind kind = ModuleKind::encoder;
  FamilyConfig defaults = {};
  /// Names every key with its member and range.
  std::function<void(ConfigFields&, FamilyConfig&)> fields = {};
  std::function<ModuleSizes(const FamilyConfig&)> sizes = {};
  /// What is wrong with sizes that are each in their range. May be left out.
  std::function<std::vector<ConfigProblem>(const FamilyConfig&)> problems = {};
  /// Layers and parameters under Hugging Face's names, each beginning with the module's name and a
  /// dot. Called for sound configurations only; for an `input_width` or `output_width` that the
  /// configuration leaves out, `widths` has what follows from the neighbours.
  std::function<ModuleDescription(const ModuleConfig&, const Widths&)> describe = {};
  /// Costs of every layer, in the order of `describe`; widths as there.
  std::function<std::vector<LayerWork>(const ModuleConfig&, const Widths&)> works = {};
  /// Of an encoder: what it takes of a sample, in which size and by which scale of pixels, and how
  /// many rows become of it. Profiles measure its layers on smaller pictures as well: who keeps a
  /// table of positions looks them up by `PackedBatch::grids`. The product resizes, cuts and
  /// normalises pictures, and makes the features of sounds, for every family by these values, so
  /// that no family has a say in how media move between nodes.
  std::function<MediaInput(const FamilyConfig&)> media = {};
  /// Of an llm: its layers attend by `PackedBatch::mask` where the module's `attention` is
  /// `AttentionRule::modality`; false: such a job is refused.
  bool takes_masks = false;
  /// Layer `index` from its parameters, in the order of `describe`.
  std::function<std::unique_ptr<Layer>(const ModuleConfig&, int index, std::vector<Parameter>)>
      make = {};
  /// Moves the parameters that `describe` gives an `own_update`, one at a call
  /// (models/own_update.hpp); what several nodes hold they all move alike. Set where there are
  /// such.
  std::function<void(const ModuleConfig&, const ParameterUpdate&)> update = {};
};

/// The members of `Family` from functions of a typed configuration.
template <class Config>
std::function<void(ConfigFields&, FamilyConfig&)> fields_of(void (*fields)(ConfigFields&,
                                                                           Config&)) {
  return [fields](ConfigFields& visitor, FamilyConfig& config) {
    Config values = config.as<Config>();
    fields(visitor, values);
    config = FamilyConfig(std::move(values));
  };
}
template <class Config, class Answer>
std::function<Answer(const FamilyConfig&)> asked(Answer (*ask)(const Config&)) {
  return [ask](const FamilyConfig& config) { return ask(config.as<Config>()); };
}  ///< Members of `Family` that take a configuration alone.

/// What is wrong with a configuration alone: every value outside its range; where all are inside,
/// what the family says.
std::vector<ConfigProblem> problems_of(const Family& family, const FamilyConfig& config);

}  // namespace troupe::models
