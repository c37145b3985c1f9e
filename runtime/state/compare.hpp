// How far two runs are apart: final parameters, loss curves, first gradients.
//
// For `troupe compare` and the parity tests. Reads files, changes nothing; values out. Thread-safe.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/state/safetensors.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// How the difference of two tensors is measured, always in fp64.
enum class DifferenceNorm : std::uint8_t {
  max,  ///< max|a-b| / max(max|a|, 1e-8).
  l2,   ///< ||a-b|| / max(||a||, 1e-8).
};

/// One tensor's difference; infinite where exactly one side is NaN or infinite at some element.
struct TensorDifference {
  std::string name;
  double difference = 0;

  friend bool operator==(const TensorDifference&, const TensorDifference&) = default;
};

/// Two sets of tensors compared.
struct TensorsComparison {
  std::int64_t tensor_count = 0;
  double largest = 0;                   ///< Over all tensors.
  bool equal_to_the_bit = true;         ///< Same types and same bytes everywhere.
  std::vector<TensorDifference> worst;  ///< At most five, largest first; ties by name.
  std::vector<TensorDifference>
      modules;  ///< Largest per module (name up to the first dot), by name.
};

/// Two loss curves compared, step by step.
struct LossComparison {
  std::int64_t step_count = 0;       ///< Steps that both have.
  std::int64_t unmatched_steps = 0;  ///< Steps that only one has.
  double largest = 0;                ///< |a-b| / max(|a|, 1e-8); infinite if one is null.
  std::int64_t largest_at_step = 0;  ///< 0: all equal.
};

/// Everything `troupe compare` prints. Losses or gradients are absent where a run lacks the file;
/// the note then says which.
struct RunComparison {
  TensorsComparison parameters;
  std::optional<LossComparison> losses;
  std::optional<TensorsComparison> gradients;
  std::vector<std::string> notes;
};

/// Difference of two tensors of one shape. REQUIRES: defined, equal shapes.
double tensor_difference(const at::Tensor& a, const at::Tensor& b, DifferenceNorm norm);

/// Compares tensors by name. `what` ("parameter", "gradient"), `where_a` and `where_b` are for
/// messages.
///
/// Errors:
/// - invalid_argument: a name only one side has, or different shapes; at most three are named.
Result<TensorsComparison> compare_tensors(const TensorMap& a, const TensorMap& b,
                                          DifferenceNorm norm, std::string_view what,
                                          const std::string& where_a, const std::string& where_b);

/// Compares the `loss` of two metrics.jsonl files. A torn last line is left out; of a step that
/// stands twice (a replay after a failure) the last counts.
///
/// Errors:
/// - not_found: a file is missing.
/// - bad_data: a line is not a JSON object with `step` and `loss`, or no step is in both.
Result<LossComparison> compare_losses(const std::filesystem::path& a,
                                      const std::filesystem::path& b);

/// Every tensor of all `*.safetensors` files of a folder.
///
/// Errors:
/// - not_found: no folder or no such file in it. bad_data: a name stands in two files.
/// - those of SafetensorsReader.
Result<TensorMap> read_model(const std::filesystem::path& folder);

/// Compares two run folders: `model/`, `metrics.jsonl`, `gradients/step-1.safetensors`.
///
/// Errors:
/// - not_found: a run folder, or a run's final parameters, do not exist.
/// - those of the functions above.
Result<RunComparison> compare_runs(const std::filesystem::path& run_a,
                                   const std::filesystem::path& run_b, DifferenceNorm norm);

}  // namespace troupe::state
