// Who copies which layer to whom after a reconfiguration, so that the most loaded sender has as
// little to send as possible.
//
// Pure; thread-safe; the same answer on every node. Each copy has one sender, a rank that held the
// layer before; a rank that needs a layer it already holds gets no copy.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// One layer, or any other unit of state.
struct CopyItem {
  std::string name;
  std::int64_t bytes = 0;             ///< >= 0.
  std::vector<std::int64_t> holders;  ///< Ranks that have it.
  std::vector<std::int64_t> needs;    ///< Ranks that must have it.
};

struct Copy {
  std::int32_t item = 0;  ///< Index into the items.
  std::int64_t from = 0;
  std::int64_t to = 0;

  friend auto operator<=>(const Copy&, const Copy&) = default;
};

struct CopyPlan {
  std::vector<Copy> copies;  ///< By item, then receiver.
  std::int64_t max_sent_bytes = 0;
  /// No plan can do better. Equal to `max_sent_bytes` exactly when the plan is proven optimal.
  std::int64_t lower_bound_bytes = 0;
};

inline constexpr std::int64_t kCopySearchSteps = 100'000;

/// Plans all copies.
///
/// Items of equal size are solved exactly by flow. Unequal sizes make the problem NP-hard
/// (scheduling with assignment restrictions): a greedy start and local search give a plan, flow
/// with whole copies per sender gives the bound, and where they differ searches of at most
/// `search_steps` (>= 0) steps each close the gap from both sides.
/// Ties: lower ranks send first; the choice is fixed. Cost: milliseconds for 100 layers and ranks,
/// and where a gap stays open some ten searches.
///
/// Errors:
/// - invalid_argument: negative bytes or rank, sizes whose sum exceeds 2^62.
/// - infeasible: layers that are needed but held by nobody; the message names all of them.
Result<CopyPlan> plan_copies(const std::vector<CopyItem>& items,
                             std::int64_t search_steps = kCopySearchSteps);

}  // namespace troupe::scheduler
