#include "engine/reference/reference_state.hpp"

#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "engine/execution/parameter_shard.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/reference/whole_model.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/safetensors.hpp"

namespace troupe::engine {

namespace {

constexpr const char* kStateFile = "state-reference.safetensors";

}  // namespace

void ReferenceState::add(const std::string& name, const at::Tensor& value,
                         state::AdamWState& optimizer) {
  copies_[name].push_back({value.detach(), &optimizer});
}

void ReferenceState::add(ParameterShard& holder) {
  for (std::size_t i = 0; i < holder.parameters().size(); ++i)
    add(holder.parameters()[i]->name, holder.parameters()[i]->value, holder.optimizers()[i]);
}

void ReferenceState::add_frozen(WholeModel& model) {
  for (const auto& parameter : model.all_parameters()) {
    auto& copies = copies_[parameter.name];
    const bool is_known = std::any_of(copies.begin(), copies.end(), [&](const Copy& copy) {
      return copy.value.data_ptr() == parameter.value.data_ptr();
    });
    if (!is_known) copies.push_back({parameter.value.detach(), nullptr});
  }
}

Status ReferenceState::load(const state::Checkpoint& checkpoint) const {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, copies] : copies_) {
    const Box whole = whole_box(copies.front().value.sizes().vec());
    for (const Copy& copy : copies) {
      const auto read = [&](StateKind kind, const at::Tensor& target) {
        return checkpoint.read(name, kind, whole, target.scalar_type());
      };
      const auto value = read(StateKind::value, copy.value);
      if (!value.ok()) return value.error();
      copy.value.copy_(value.value());
      if (copy.optimizer == nullptr) continue;
      const auto moments = read(StateKind::moments, copy.optimizer->exp_avg);
      if (!moments.ok()) return moments.error();
      copy.optimizer->exp_avg.copy_(moments.value().select(0, 0));
      copy.optimizer->exp_avg_sq.copy_(moments.value().select(0, 1));
      if (!copy.optimizer->master.defined()) continue;
      const auto master = read(StateKind::master, copy.optimizer->master);
      if (!master.ok()) return master.error();
      copy.optimizer->master.copy_(master.value());
    }
  }
  return Done{};
}

Result<std::vector<Error>> ReferenceState::save(const JobSetup& setup, const JobProgress& progress,
                                                const std::string& build,
                                                const std::string& resolved_job) const {
  state::CheckpointManifest manifest;
  manifest.job = setup.job.job.name;
  manifest.build = build;
  manifest.written_at = utc_now();
  manifest.dtype = setup.job.train.dtype;
  manifest.progress = progress;
  state::TensorMap tensors;
  for (std::size_t p = 0; p < setup.parameters.size(); ++p) {
    const ParameterInfo& info = setup.parameters[p];
    manifest.parameters.push_back(state::saved_as(info));
    const auto& copies = copies_.at(info.name);
    // Of a tied parameter one use may be a plain copy; the one that trains knows all.
    const auto trained = std::find_if(copies.begin(), copies.end(),
                                      [](const Copy& copy) { return copy.optimizer != nullptr; });
    const Copy& copy = trained == copies.end() ? copies.front() : *trained;
    const auto put = [&](StateKind kind, const at::Tensor& tensor) {
      const ShardKey key{ParameterId{p}, kind, whole_box(info.shape)};
      manifest.shards.push_back({key, 0});
      tensors[state::tensor_name(manifest.parameters.back(), key)] = tensor;
    };
    put(StateKind::value, copy.value);
    if (!info.trains) continue;
    if (copy.optimizer->master.defined()) put(StateKind::master, copy.optimizer->master);
    put(StateKind::moments, at::stack({copy.optimizer->exp_avg, copy.optimizer->exp_avg_sq}));
  }
  const auto folder = setup.job.checkpoint_dir();
  const auto partial = state::partial_folder(folder, progress.step, 1);
  const auto file = partial / kStateFile;
  state::Sha256 digest;
  if (auto written = state::write_safetensors(file, tensors, {}, &digest); !written.ok()) {
    state::discard_checkpoint(partial);
    return written.error();
  }
  std::error_code code;
  manifest.files = {{kStateFile, static_cast<std::int64_t>(std::filesystem::file_size(file, code)),
                     digest.text()}};
  auto complete = state::complete_checkpoint(
      partial, state::checkpoint_folder(folder, progress.step), manifest, resolved_job);
  if (complete.ok()) return state::remove_older_checkpoints(folder, setup.job.checkpoint.keep_last);
  state::discard_checkpoint(partial);
  return complete.error();
}

}  // namespace troupe::engine
