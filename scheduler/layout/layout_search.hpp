// One search among candidate layouts: scores them, keeps the best, moves their cuts, lets a judge
// compare the best of each kind.
//
// Pure. Helper of auto_layout.cpp. Single owner.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_candidates.hpp"
#include "scheduler/layout/layout_reasons.hpp"
#include "scheduler/layout/layout_score.hpp"

namespace troupe::scheduler {

/// Makes candidates that come near the best estimate: below `worth` times of it.
using MakeCandidates = std::function<Result<std::vector<LayoutCandidate>>(double worth)>;

inline constexpr std::size_t kPerChoice = 4;  ///< Candidates simulated per number of pipelines.

class LayoutSearch {
 public:
  /// `request` and `scorer` outlive this. `actions_max`: what may be simulated, about.
  LayoutSearch(const AutoLayoutRequest& request, LayoutScorer& scorer, double actions_max)
      : request_(request), scorer_(scorer), actions_max_(actions_max) {}

  /// Simulates candidates, in order, and moves the cuts of the best; what looks hopeless only where
  /// nothing else fits, and not at all without `to_the_end`. Half of `actions_max` is for the
  /// former. The first of all is simulated in any case, and the first of other kinds (numbers of
  /// copies, form, degrees), four at most, as long as none fits, or estimates promise less than
  /// what was found, here or elsewhere (`known_ms`). Where no candidate can be made, nothing is
  /// found, and `why` says so. Errors: as the candidates', other than infeasible; as
  /// `LayoutScorer::score`.
  Status run(const MakeCandidates& make, bool to_the_end = true,
             double known_ms = std::numeric_limits<double>::infinity());

  /// True if the best layout fits.
  bool found() const { return !scored_.empty() && scored_.front().fits; }
  /// REQUIRES: found.
  double best_ms() const { return scored_.front().step.step_ms; }
  /// Why there was no candidate.
  const Error& why() const { return why_; }

  /// The best layouts of each kind, `most` at most, that a judge may compare; none where they are
  /// too large to be simulated several times.
  std::vector<std::size_t> to_judge(std::size_t most) const;

  /// Lets the request's judge compare these; its figures replace the search's, and what it has not
  /// seen is left out, so that figures of one origin are compared.
  /// Errors: as the judge, other than infeasible.
  Status judge(const std::vector<std::size_t>& chosen);

  /// Puts the layout with the fewest devices first of those that are about as fast as the fastest,
  /// where devices may idle.
  void prefer_fewer_devices();

  /// Best first.
  const std::vector<ScoredLayout>& results() const { return scored_; }
  std::vector<ScoredLayout> take() && { return std::move(scored_); }
  std::int64_t simulated() const { return simulated_; }
  std::int64_t judged() const { return judged_; }

 private:
  Status look_at(std::vector<LayoutCandidate> candidates, double known_ms);
  double cost(const LayoutCandidate& candidate) const;
  bool may_simulate(const LayoutCandidate& candidate, double share) const;
  bool fits(const PredictedStep& step) const;
  Result<ScoredLayout> score(LayoutCandidate candidate);
  Status simulate(LayoutCandidate candidate);
  void sort();
  Status refine(const ScoredLayout& scored);
  Result<bool> challenge(LayoutCandidate candidate, ScoredLayout& best);
  Status try_all(const LayoutCandidate& candidate, std::size_t shape, std::size_t track,
                 std::size_t cut, ScoredLayout& best);
  Status climb(ScoredLayout& best);

  const AutoLayoutRequest& request_;
  LayoutScorer& scorer_;
  const double actions_max_;
  std::vector<ScoredLayout> scored_, refined_;
  Error why_;
  double actions_ = 0;
  std::int64_t simulated_ = 0;
  std::int64_t judged_ = 0;
};

}  // namespace troupe::scheduler
