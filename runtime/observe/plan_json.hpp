// Plans as JSON: plan.json, and one line per iteration in iterations.jsonl.
//
// For people, reports, and `troupe train --reference --microbatches RUN`, which reads both back.
// Pure; reading checks every index, so that a damaged file cannot crash who uses the plan.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// The whole plan, indented, names beside ids.
std::string plan_json(const ParallelPlan& plan, EpochNumber epoch_number);

/// What plan.json holds.
struct RecordedPlan {
  EpochNumber epoch_number = 0;
  ParallelPlan plan;

  friend bool operator==(const RecordedPlan&, const RecordedPlan&) = default;
};

/// Reads plan_json's text back, to an equal plan.
/// Errors: bad_data: what is missing, mistyped or out of range, by its JSON path.
Result<RecordedPlan> parse_plan(std::string_view text);

/// The part of an IterationPlan that decides the result to the bit: which samples, in which
/// microbatches and parts, and in which order each stage adds up their gradients.
struct RecordedIteration {
  std::int64_t step = 0;
  EpochNumber epoch_number = 0;
  std::vector<std::string> ids;              ///< Of the samples, in training order.
  std::vector<SamplePiece> pieces;           ///< Those of items that are not there are possible.
  std::vector<MicrobatchList> microbatches;  ///< Per replica; indices into `ids`, then `pieces`.
  std::vector<Action> backward;              ///< `backward_order` of the plan.

  friend bool operator==(const RecordedIteration&, const RecordedIteration&) = default;
};

/// The backward actions of all stages, those of one stage in the order it runs them.
std::vector<Action> backward_order(const IterationPlan& plan);

/// One line without a newline.
std::string iteration_line(const IterationPlan& plan);

/// Reads a line back.
/// Errors: bad_data: what is missing, mistyped or out of range.
Result<RecordedIteration> parse_iteration(std::string_view line);

}  // namespace troupe::observe
