#include "scheduler/layout/auto_layout.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
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

constexpr double kOwnShare = 0.5;  ///< Of what may be simulated, for all numbers of their own.
/// Numbers of their own that take so many times the best layout with one number are not judged.
constexpr double kHopeless = 1.5;

void append(std::vector<ScoredLayout>& to, std::vector<ScoredLayout> from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

/// What each search over numbers of their own may simulate.
double own_actions(const AutoLayoutRequest& request) {
  return kOwnShare * kAutoLayoutActionsMax / (allows_colocated(request) ? 2 : 1);
}

/// Searches over layouts with one number of replicas for all modules, with numbers of their own on
/// devices of their own, and with such numbers on shared devices.
class Searches {
 public:
  explicit Searches(const AutoLayoutRequest& request)
      : request_(request),
        scorer_(request),
        one_(request, scorer_, kAutoLayoutActionsMax),
        apart_(request, scorer_, own_actions(request)),
        colocated_(request, scorer_, own_actions(request)) {}

  Status run() {
    if (allows_one_number(request_)) {
      auto done = one_.run(
          [&](double worth) { return layout_candidates(request_, scorer_, kPerChoice, worth); });
      if (!done.ok()) return done;
    }
    if (allows_own_numbers(request_))
      if (auto done = run_own(apart_, Sharing::disjoint); !done.ok()) return done;
    if (allows_colocated(request_))
      if (auto done = run_own(colocated_, Sharing::colocated); !done.ok()) return done;
    if (auto done = judge(); !done.ok()) return done;
    for (LayoutSearch* search : all()) search->prefer_fewer_devices();
    return Done{};
  }

  /// The best layout of all, with reasons. Errors: infeasible where none fits.
  Result<AutoLayout> choose() && {
    const bool together =
        colocated_.found() && (!apart_.found() || colocated_.best_ms() < apart_.best_ms());
    LayoutSearch& own = together ? colocated_ : apart_;
    LayoutSearch& other_own = together ? apart_ : colocated_;
    const bool own_first = pays(own);
    AutoLayout made;
    if (own_first && one_.found()) made.one_number_ms = one_.best_ms();
    Error why;
    for (const LayoutSearch* search : all()) {
      made.simulated += search->simulated();
      made.judged += search->judged();
      if (why.message.empty()) why = search->why();
    }
    auto scored = std::move(own_first ? own : one_).take();
    auto others = std::move(own_first ? one_ : own).take();
    append(own_first ? scored : others, std::move(other_own).take());
    if (scored.empty()) std::swap(scored, others);
    if (scored.empty()) return why;
    if (!scored.front().fits) {
      append(scored, std::move(others));
      return memory_error(request_, scored);
    }
    made.reasons = layout_reasons(request_, scored, others);
    ScoredLayout& best = scored.front();
    made.placed_ms = best.step.step_ms;
    if (const auto* other = other_placement(scored, others))
      made.other_placement = {*encoder_placement(other->placed.plan), other->fits,
                              other->step.step_ms};
    made.layout = std::move(best.placed.layout);
    made.plan = std::move(best.placed.plan);
    made.predicted = std::move(best.step);
    return made;
  }

 private:
  std::array<LayoutSearch*, 3> all() { return {&one_, &apart_, &colocated_}; }

  Status run_own(LayoutSearch& search, Sharing sharing) {
    // In phases there are two such searches: what they call hopeless is not worth its time.
    const bool to_the_end = !allows_colocated(request_) || !(one_.found() || apart_.found());
    return search.run(
        [&](double worth) {
          return replica_candidates(request_, scorer_, sharing, kPerChoice, worth);
        },
        to_the_end, best_ms());
  }

  /// Of what was found until now.
  double best_ms() {
    double best = std::numeric_limits<double>::infinity();
    for (const LayoutSearch* search : all())
      if (search->found()) best = std::min(best, search->best_ms());
    return best;
  }

  /// Either all that were found are judged, or none: figures of one origin are compared.
  Status judge() {
    if (!request_.judge) return Done{};
    std::vector<std::pair<LayoutSearch*, std::vector<std::size_t>>> chosen;
    std::size_t count = 0;
    for (LayoutSearch* search : all()) {
      const bool hopeless =
          one_.found() && search->found() && search->best_ms() > kHopeless * one_.best_ms();
      if (!search->found() || hopeless) continue;
      auto own = search->to_judge(search == &one_ ? kJudged : kJudgedNumbers);
      if (own.empty()) return Done{};
      count += own.size();
      chosen.emplace_back(search, std::move(own));
    }
    if (count < 2) return Done{};
    for (const auto& [search, own] : chosen)
      if (auto done = search->judge(own); !done.ok()) return done;
    return Done{};
  }

  bool pays(const LayoutSearch& search) const {
    if (!search.found()) return false;
    if (!one_.found()) return true;
    const auto& own = search.results().front();
    const auto& one = one_.results().front();
    const double worth = devices_of(own) > devices_of(one) ? kWorthDevices : kWorthNumbers;
    return own.step.step_ms <= (1 - worth) * one.step.step_ms;
  }

  const AutoLayoutRequest& request_;
  LayoutScorer scorer_;
  LayoutSearch one_, apart_, colocated_;
};

}  // namespace

Result<AutoLayout> auto_layout(const AutoLayoutRequest& request) {
  if (auto checked = check_request(request); !checked.ok()) return std::move(checked).error();
  Searches searches(request);
  if (auto done = searches.run(); !done.ok()) return std::move(done).error();
  return std::move(searches).choose();
}

Result<PredictedStep> predict_step(const ParallelPlan& plan, const AutoLayoutRequest& request) {
  if (auto checked = check_request(request); !checked.ok()) return std::move(checked).error();
  return LayoutScorer(request).score(plan);
}

}  // namespace troupe::scheduler
