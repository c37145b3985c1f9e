// The state of a reference run in a checkpoint: written and read as those of jobs are, so that any
// stretch of a long run can be repeated by an oracle, and the other way round.

#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class ParameterShard;
class WholeModel;

/// Handles to every copy of every parameter that a run keeps; all copies of one are equal.
class ReferenceState {
 public:
  /// A trained parameter and its optimizer, which outlives this.
  void add(const std::string& name, const at::Tensor& value, state::AdamWState& optimizer);
  /// All parameters of a group at one holder.
  void add(ParameterShard& holder);
  /// Those of a model that were not added: they are frozen.
  void add_frozen(WholeModel& model);

  /// Puts what was saved into all copies. Errors: as `Checkpoint::read`.
  Status load(const state::Checkpoint& checkpoint) const;

  /// `folder`/step-N with one file of state; older ones beyond `keep_last` go. Returns which of
  /// them could not. Errors: as `state::write_safetensors` and `state::complete_checkpoint`.
  Result<std::vector<Error>> save(const JobSetup& setup, const JobProgress& progress,
                                  const std::string& build, const std::string& resolved_job) const;

 private:
  struct Copy {
    at::Tensor value;
    state::AdamWState* optimizer = nullptr;
  };
  std::map<std::string, std::vector<Copy>> copies_;
};

}  // namespace troupe::engine
