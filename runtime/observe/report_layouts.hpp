// The layouts that a run trained on, one after the other: for its report.
//
// `read_layouts` reads files, the rest is pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::observe {

struct RunRecord;

/// What a node had in a layout.
struct ReportedHolder {
  NodeId node;
  std::vector<std::string> stages;  ///< `llm 0-3 of replica 1`; empty: no work.
  std::int64_t standbys = 0;        ///< Layers and tied parameters kept up to date without work.

  friend bool operator==(const ReportedHolder&, const ReportedHolder&) = default;
};

/// A layout, from one change to the next.
struct ReportedLayout {
  EpochNumber generation = 0;
  std::int64_t first_step = 0;          ///< That ended on it; 0: none did.
  std::int64_t last_step = 0;           ///< Likewise.
  std::string words;                    ///< `2 pipelines of 3 stages`; empty: not recorded.
  std::string why;                      ///< What events.jsonl says of it; empty: nothing.
  std::vector<ReportedHolder> holders;  ///< By node.
};

/// The newest ones, ascending, so that reports of long runs stay small.
struct ReportedLayouts {
  std::vector<ReportedLayout> newest;
  std::size_t older = 0;  ///< So many came before.
};

/// What a plan puts on each of its nodes, ascending: stages in the plan's order.
std::vector<ReportedHolder> holders_of(const ParallelPlan& plan);

/// Those that the metrics name, and the one in plan.json; the others are read from plan-N.json. A
/// file that is missing or damaged leaves `words` and `holders` empty.
ReportedLayouts read_layouts(const RunRecord& run);

/// A row for each, with what every node held folded away. Empty where the run had one alone.
std::string layouts_table(const RunRecord& run);

}  // namespace troupe::observe
