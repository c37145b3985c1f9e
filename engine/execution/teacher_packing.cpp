#include "engine/execution/teacher_packing.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <utility>
#include <vector>

#include "models/text_batch.hpp"
#include "runtime/vocabulary/module_rows.hpp"

namespace troupe::engine {

Result<models::PackedBatch> pack_teacher_shapes(std::span<const SampleShape> samples,
                                                std::span<const std::int32_t> part) {
  std::vector<TokenSample> packed;
  for (const std::int32_t index : part)
    if (const TokenCount rows = text_rows(samples[static_cast<std::size_t>(index)]); rows > 0)
      packed.push_back({rows, {}});
  if (packed.empty()) return models::PackedBatch{};
  return models::text_batch(packed, AttentionRule::causal);
}

at::Tensor text_alone(const PackedText& text) {
  std::vector<std::int64_t> positions;
  for (const auto& own : text.text_positions)
    positions.insert(positions.end(), own.begin(), own.end());
  return text.token_ids.index_select(0, at::tensor(positions, at::kLong));
}

Result<models::TaughtRows> taught_rows(const std::string& teacher, const PackedText& text,
                                       std::span<const std::int32_t> part,
                                       const std::map<std::int32_t, at::Tensor>& rows_of) {
  models::TaughtRows taught{teacher, {}, {}};
  std::vector<std::int64_t> positions;
  std::vector<at::Tensor> rows;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto& own = text.text_positions[i];
    if (own.empty()) continue;
    const auto found = rows_of.find(part[i]);
    if (found == rows_of.end() || found->second.size(0) != std::ssize(own))
      return Error{
          Errc::internal, "teacher '" + teacher + "' has not a row for each token of text", {}, {}};
    positions.insert(positions.end(), own.begin(), own.end());
    rows.push_back(found->second);
  }
  if (rows.empty()) return taught;
  taught.positions = at::tensor(positions, at::kLong);
  taught.rows = at::cat(rows);
  return taught;
}

}  // namespace troupe::engine
