// How many rows of a sample a module works on: the one rule that planners, engine and simulator
// share, so that no size is ever negotiated.
//
// Pure.

#pragma once

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/token_mask.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Rows that `module` hands to each module after it. A projector keeps the rows of the encoders
/// before it; a teacher has a row per token of text; the llm hands on none of its own, its rows are
/// the sample's tokens.
TokenCount output_rows(const ModelGraph& graph, ModuleId module, const SampleShape& sample);

/// Rows between two layers of `module`. Zero where `output_rows` is zero: a sample whose media
/// yield no output row does not pass through the module at all.
TokenCount hidden_rows(const ModelGraph& graph, ModuleId module, const SampleShape& sample);

/// Tokens of text in the llm's sequence, which are the rows of a teacher: it sees no media.
TokenCount text_rows(const SampleShape& sample);

/// The sample as the llm's attention takes it: its tokens, and a span for each marker that has
/// rows. All windows of a long clip are one sound, and so one span.
TokenSample token_sample(const SampleShape& sample);

}  // namespace troupe
