// Text for teachers, and their rows for the llm's last layer.
//
// A teacher reads the text of a sample without its media: a row per token of text, in their order.
// Stateless; the tensors own their memory.

#pragma once

#include <map>
#include <span>
#include <string>

#include "engine/execution/packing.hpp"

namespace troupe::engine {

/// What a teacher's layers read of a part besides rows: a segment per sample that has text, and
/// positions. No contents.
///
/// Errors:
/// - invalid_argument: as `models::text_batch`.
Result<models::PackedBatch> pack_teacher_shapes(std::span<const SampleShape> samples,
                                                std::span<const std::int32_t> part);

/// The tokens that are text: int64 [rows of the teacher].
at::Tensor text_alone(const PackedText& text);

/// The rows of a teacher for a part, in the order of its sequence; `rows` undefined where no sample
/// has text. `rows_of`: by sample of the iteration.
///
/// Errors:
/// - internal: a sample has not as many rows as tokens of text.
Result<models::TaughtRows> taught_rows(const std::string& teacher, const PackedText& text,
                                       std::span<const std::int32_t> part,
                                       const std::map<std::int32_t, at::Tensor>& rows_of);

}  // namespace troupe::engine
