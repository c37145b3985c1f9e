// A small checkpoint with contents: the example's manifest, and numbers that no narrow type holds.

#pragma once

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

#include <filesystem>
#include <vector>

#include "runtime/state/checkpoint.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "runtime/state/file_digest.hpp"
#include "tests/runtime/state/example_checkpoint.hpp"

namespace troupe::state {

inline at::Tensor plus(const at::Tensor& tensor, double more) { return at::add(tensor, more); }

/// 0.01, 1.01, ...: not to be told by bf16.
inline at::Tensor exact() { return plus(at::arange(24, at::kFloat).view({4, 6}), 0.01); }

/// Both means.
inline at::Tensor moments() { return at::stack({plus(exact(), 1), plus(exact(), 2)}); }

/// The example as `step-N` of the folder, in two files, as devices write it. Values of a bf16 model
/// are rounded.
inline Status write_example_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                                       Dtype dtype = Dtype::fp32) {
  CheckpointManifest manifest = example_manifest(step, dtype);
  const auto partial = partial_folder(folder, step, 1);
  const auto value = dtype == Dtype::bf16 ? exact().to(at::kBFloat16) : exact();
  const std::vector<at::Tensor> of{value, at::arange(3, at::kFloat)};
  std::vector<TensorMap> files(2);
  for (const auto& shard : manifest.shards) {
    const auto& box = shard.key.box;
    auto tensor = of[shard.key.parameter.index()];
    if (shard.key.kind == StateKind::master) tensor = exact();
    if (shard.key.kind == StateKind::moments) tensor = moments();
    const std::int64_t first = shard.key.kind == StateKind::moments ? 1 : 0;
    for (std::size_t d = 0; d < box.size(); ++d)
      tensor = tensor.narrow(first + static_cast<std::int64_t>(d), box[d].begin, box[d].size());
    const auto& parameter = manifest.parameters[shard.key.parameter.index()];
    files[static_cast<std::size_t>(shard.file)][tensor_name(parameter, shard.key)] = tensor;
  }
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto path = partial / manifest.files[f].name;
    if (auto written = write_safetensors(path, files[f]); !written.ok()) return written;
    manifest.files[f].bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
    manifest.files[f].sha256 = sha256_of_file(path).value();
  }
  return complete_checkpoint(partial, checkpoint_folder(folder, step), manifest, "the job");
}

}  // namespace troupe::state
