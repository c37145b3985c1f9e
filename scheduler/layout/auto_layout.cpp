#include "scheduler/layout/auto_layout.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/layout/layout_candidates.hpp"
#include "scheduler/layout/layout_reasons.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/layout_search.hpp"
#include "scheduler/layout/replica_candidates.hpp"

namespace troupe::scheduler {

namespace {

constexpr double kOwnShare = 0.5;  ///< Of what may be simulated, for numbers of their own.
/// Numbers of their own that take so many times the best layout with one number are not judged.
constexpr double kHopeless = 1.5;

/// Searches over layouts with one number of replicas for all modules, and with numbers of their
/// own.
class BothSearches {
 public:
  explicit BothSearches(const AutoLayoutRequest& request)
      : request_(request),
        scorer_(request),
        one_(request, scorer_, kAutoLayoutActionsMax),
        own_(request, scorer_, kOwnShare * kAutoLayoutActionsMax) {}

  Status run() {
    if (allows_one_number(request_)) {
      auto done = one_.run(
          [&](double worth) { return layout_candidates(request_, scorer_, kPerChoice, worth); });
      if (!done.ok()) return done;
    }
    if (allows_own_numbers(request_)) {
      auto done = own_.run(
          [&](double worth) { return replica_candidates(request_, scorer_, kPerChoice, worth); });
      if (!done.ok()) return done;
    }
    if (auto done = judge(); !done.ok()) return done;
    one_.prefer_fewer_devices();
    own_.prefer_fewer_devices();
    return Done{};
  }

  /// The best layout of both, with reasons. Errors: infeasible where none fits.
  Result<AutoLayout> choose() && {
    const bool own_first = own_pays();
    AutoLayout made;
    if (own_first && one_.found()) made.one_number_ms = one_.best_ms();
    made.simulated = one_.simulated() + own_.simulated();
    made.judged = one_.judged() + own_.judged();
    const Error why = one_.why().message.empty() ? own_.why() : one_.why();
    auto scored = std::move(own_first ? own_ : one_).take();
    auto others = std::move(own_first ? one_ : own_).take();
    if (scored.empty()) std::swap(scored, others);
    if (scored.empty()) return why;
    if (!scored.front().fits) {
      scored.insert(scored.end(), others.begin(), others.end());
      return memory_error(request_, scored);
    }
    made.reasons = layout_reasons(request_, scored, others);
    ScoredLayout& best = scored.front();
    made.layout = std::move(best.placed.layout);
    made.plan = std::move(best.placed.plan);
    made.predicted = std::move(best.step);
    return made;
  }

 private:
  /// Either all that were found are judged, or none: figures of one origin are compared.
  Status judge() {
    if (!request_.judge) return Done{};
    const bool hopeless =
        one_.found() && own_.found() && own_.best_ms() > kHopeless * one_.best_ms();
    std::vector<std::size_t> one, own;
    if (one_.found()) one = one_.to_judge(kJudged);
    if (own_.found() && !hopeless) own = own_.to_judge(kJudgedNumbers);
    if (one_.found() && one.empty()) return Done{};
    if (own_.found() && !hopeless && own.empty()) return Done{};
    if (one.size() + own.size() < 2) return Done{};
    if (auto done = one_.judge(one); !done.ok()) return done;
    return own_.judge(own);
  }

  bool own_pays() const {
    if (!own_.found()) return false;
    if (!one_.found()) return true;
    const auto& own = own_.results().front();
    const auto& one = one_.results().front();
    const double worth = devices_of(own) > devices_of(one) ? kWorthDevices : kWorthNumbers;
    return own.step.step_ms <= (1 - worth) * one.step.step_ms;
  }

  const AutoLayoutRequest& request_;
  LayoutScorer scorer_;
  LayoutSearch one_, own_;
};

}  // namespace

Result<AutoLayout> auto_layout(const AutoLayoutRequest& request) {
  if (auto checked = check_request(request); !checked.ok()) return std::move(checked).error();
  BothSearches searches(request);
  if (auto done = searches.run(); !done.ok()) return std::move(done).error();
  return std::move(searches).choose();
}

Result<PredictedStep> predict_step(const ParallelPlan& plan, const AutoLayoutRequest& request) {
  if (auto checked = check_request(request); !checked.ok()) return std::move(checked).error();
  return LayoutScorer(request).score(plan);
}

}  // namespace troupe::scheduler
