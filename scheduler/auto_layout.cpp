#include "scheduler/auto_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "scheduler/layout_candidates.hpp"
#include "scheduler/layout_reasons.hpp"
#include "scheduler/layout_request.hpp"
#include "scheduler/layout_score.hpp"

namespace troupe::scheduler {

namespace {

constexpr std::size_t kPerChoice = 4;     ///< Candidates simulated per number of pipelines.
constexpr std::size_t kRefined = 3;       ///< Candidates whose cuts are moved.
constexpr double kCutsExhaustive = 400;   ///< Ways to cut a pipeline that are all tried.
constexpr double kWorthSimulating = 1.5;  ///< Times the least estimate.

double fullest(const PredictedStep& step) {
  return step.peak_memory_bytes.empty()
             ? 0
             : *std::max_element(step.peak_memory_bytes.begin(), step.peak_memory_bytes.end());
}

/// Devices that a layout occupies.
std::int32_t devices_of(const ScoredLayout& scored) {
  std::int32_t count = 0;
  for (const auto& group : scored.placed.groups) count += group.count;
  return count;
}

/// Sum of the squares of the stages' work: least where the work is shared out evenly.
double unevenness(const PredictedStep& step) {
  double sum = 0;
  for (const double ms : step.stage_ms) sum += ms * ms;
  return sum;
}

/// What layouts differ in besides their cuts: pipelines, form, degrees.
using LayoutKind = std::tuple<std::int32_t, std::string, std::vector<Parallelism>>;

LayoutKind kind_of(const LayoutCandidate& candidate) {
  return {candidate.pipelines(), describe(candidate.shapes.front().form), candidate.parallelisms};
}

/// Scores candidates, keeps the best, moves its cuts.
class Search {
 public:
  Search(const AutoLayoutRequest& request, LayoutScorer& scorer)
      : request_(request), scorer_(scorer) {}

  /// May be called again, with more candidates: nothing is remembered but what was simulated.
  Status run(std::vector<LayoutCandidate> candidates) {
    actions_ = 0;
    scored_.clear();
    refined_.clear();
    for (auto& candidate : candidates)
      if (scored_.empty() || may_simulate(candidate, 0.5))
        if (auto done = simulate(std::move(candidate)); !done.ok()) return done;
    sort();
    for (std::size_t i = 0; i < std::min(kRefined, scored_.size()); ++i)
      if (auto done = refine(scored_[i]); !done.ok()) return done;
    // First, so that more even cuts win where they are no faster.
    scored_.insert(scored_.begin(), std::make_move_iterator(refined_.begin()),
                   std::make_move_iterator(refined_.end()));
    sort();
    if (auto done = judge(); !done.ok()) return done;
    prefer_fewer_devices();
    return Done{};
  }

  /// True if the best layout fits.
  bool found() const { return scored_.front().fits; }
  std::vector<ScoredLayout> results() && { return std::move(scored_); }
  std::int64_t simulated() const { return simulated_; }
  std::int64_t judged() const { return judged_; }

 private:
  double cost(const LayoutCandidate& candidate) const {
    return scorer_.actions(candidate.pipelines(), candidate.groups());
  }
  /// Half of the work is left to moving cuts.
  bool may_simulate(const LayoutCandidate& candidate, double share) const {
    return actions_ + cost(candidate) <= share * kAutoLayoutActionsMax;
  }

  Result<ScoredLayout> score(LayoutCandidate candidate) {
    auto placed = place(request_, candidate);
    if (!placed.ok()) return std::move(placed).error();
    actions_ += cost(candidate);
    ++simulated_;
    auto step = scorer_.score(placed.value().plan, candidate.parallelisms);
    if (!step.ok()) return std::move(step).error();
    const bool enough = fits(step.value());
    return ScoredLayout{std::move(candidate), std::move(placed).value(), std::move(step).value(),
                        enough};
  }

  bool fits(const PredictedStep& step) const {
    const double memory = static_cast<double>(request_.device_memory.count());
    return memory == 0 || fullest(step) <= memory;
  }

  /// Lets the request's judge compare the best of each kind; its figures replace the search's, and
  /// what it has not seen is left out, so that figures of one origin are compared. A layout too
  /// large to be simulated several times stays as the search has it.
  Status judge() {
    if (!request_.judge || scored_.empty() || !scored_.front().fits) return Done{};
    std::vector<ScoredLayout> judged;
    std::map<LayoutKind, std::vector<const HandLayout*>> seen;
    std::vector<std::size_t> chosen;
    double actions = 0;
    for (std::size_t i = 0; i < scored_.size() && chosen.size() < kJudged; ++i) {
      auto& alike = seen[kind_of(scored_[i].candidate)];
      const HandLayout& layout = scored_[i].placed.layout;
      const bool known = std::any_of(alike.begin(), alike.end(),
                                     [&](const auto* other) { return *other == layout; });
      const double more = cost(scored_[i].candidate);
      if (known || alike.size() == kJudgedPerKind || !scored_[i].fits ||
          actions + more > kAutoLayoutActionsMax)
        continue;
      actions += more;
      alike.push_back(&layout);
      chosen.push_back(i);
    }
    if (chosen.size() < 2) return Done{};  // Too large to compare.
    for (const auto i : chosen) {
      auto step = request_.judge(scored_[i].placed.plan, scored_[i].candidate.parallelisms);
      if (!step.ok() && step.error().code != Errc::infeasible) return std::move(step).error();
      judged.push_back(std::move(scored_[i]));
      if (step.ok()) judged.back().step = std::move(step).value();
      judged.back().fits = step.ok() && fits(judged.back().step);
    }
    judged_ = std::ssize(judged);
    scored_ = std::move(judged);
    sort();
    return Done{};
  }

  Status simulate(LayoutCandidate candidate) {
    auto scored = score(std::move(candidate));
    if (!scored.ok()) return std::move(scored).error();
    scored_.push_back(std::move(scored).value());
    return Done{};
  }

  void sort() {
    std::stable_sort(scored_.begin(), scored_.end(), [](const auto& a, const auto& b) {
      return a.fits != b.fits ? a.fits : a.step.step_ms < b.step.step_ms;
    });
  }

  /// Puts the layout with the fewest devices first of those that are about as fast as the fastest.
  void prefer_fewer_devices() {
    if (!request_.planned_only || scored_.empty() || !scored_.front().fits) return;
    const double limit = (1 + kWorthDevices) * scored_.front().step.step_ms;
    const auto end = std::find_if(scored_.begin(), scored_.end(), [&](const auto& scored) {
      return !scored.fits || scored.step.step_ms > limit;
    });
    const auto least = std::min_element(scored_.begin(), end, [](const auto& a, const auto& b) {
      return devices_of(a) < devices_of(b);
    });
    std::rotate(scored_.begin(), least, std::next(least));
  }

  /// Moves cuts of a candidate as long as the simulator likes it better; where there are few ways
  /// to cut, tries all. Pipelines of equal size keep equal cuts.
  Status refine(const ScoredLayout& scored) {
    const LayoutCandidate& candidate = scored.candidate;
    ScoredLayout best = scored;
    actions_ += cost(candidate);  // Each has its own moves to be simulated.
    if (ways(candidate) <= kCutsExhaustive) {
      if (auto done = try_all(candidate, 0, 0, 1, best); !done.ok()) return done;
    } else {
      if (auto done = climb(best); !done.ok()) return done;
    }
    refined_.push_back(std::move(best));
    return Done{};
  }

  static bool better(const ScoredLayout& a, const ScoredLayout& b) {
    if (a.fits != b.fits) return a.fits;
    constexpr double kEqual = 1e-9;
    const double difference = a.step.step_ms - b.step.step_ms;
    if (std::abs(difference) > kEqual * b.step.step_ms) return difference < 0;
    return unevenness(a.step) < (1 - kEqual) * unevenness(b.step);
  }

  /// Scores a candidate with moved cuts if the pins allow it; true if it became the best.
  Result<bool> challenge(LayoutCandidate candidate, ScoredLayout& best) {
    for (const auto& shape : candidate.shapes)
      if (!keeps_pins(request_, shape, *candidate.weights)) return false;
    if (!may_simulate(candidate, 1)) return false;
    auto scored = score(std::move(candidate));
    if (!scored.ok()) return std::move(scored).error();
    if (!better(scored.value(), best)) return false;
    best = std::move(scored).value();
    return true;
  }

  static double ways(const LayoutCandidate& candidate) {
    double count = 1;
    for (const auto& shape : candidate.shapes)
      for (const Track& track : shape.tracks)
        for (std::int32_t i = 1; i < track.segments(); ++i)
          count *= (static_cast<double>(track.layers.size()) - i) / i;
    return count;
  }

  /// Every position of cut `cut` of `track` of `shape`, and of all cuts after it.
  Status try_all(const LayoutCandidate& candidate, std::size_t shape, std::size_t track,
                 std::size_t cut, ScoredLayout& best) {
    if (shape == candidate.shapes.size()) {
      auto won = challenge(candidate, best);
      return won.ok() ? Status(Done{}) : Status(std::move(won).error());
    }
    const auto& tracks = candidate.shapes[shape].tracks;
    if (track == tracks.size()) return try_all(candidate, shape + 1, 0, 1, best);
    const auto& cuts = tracks[track].cuts;
    if (cut + 1 >= cuts.size()) return try_all(candidate, shape, track + 1, 1, best);
    const auto behind = static_cast<std::int32_t>(cuts.size() - 1 - cut);
    for (auto position = cuts[cut - 1] + 1; position <= cuts.back() - behind; ++position) {
      LayoutCandidate moved = candidate;
      // Later cuts follow, so that no segment is empty; they are tried themselves below.
      auto& own = moved.shapes[shape].tracks[track].cuts;
      for (std::size_t i = cut; i + 1 < own.size(); ++i)
        own[i] = position + static_cast<std::int32_t>(i - cut);
      if (auto done = try_all(moved, shape, track, cut + 1, best); !done.ok()) return done;
    }
    return Done{};
  }

  Status climb(ScoredLayout& best) {
    for (bool moved = true; moved;) {
      moved = false;
      const LayoutCandidate from = best.candidate;
      for (std::size_t s = 0; s < from.shapes.size(); ++s)
        for (std::size_t t = 0; t < from.shapes[s].tracks.size(); ++t) {
          const auto& cuts = from.shapes[s].tracks[t].cuts;
          for (std::size_t c = 1; c + 1 < cuts.size(); ++c)
            for (const std::int32_t position : {cuts[c] - 1, cuts[c] + 1}) {
              if (position <= cuts[c - 1] || position >= cuts[c + 1]) continue;
              LayoutCandidate next = from;
              next.shapes[s] = with_cut(next.shapes[s], *next.weights, t, c, position);
              auto won = challenge(std::move(next), best);
              if (!won.ok()) return std::move(won).error();
              moved = moved || won.value();
            }
        }
    }
    return Done{};
  }

  const AutoLayoutRequest& request_;
  LayoutScorer& scorer_;
  std::vector<ScoredLayout> scored_, refined_;
  double actions_ = 0;
  std::int64_t simulated_ = 0;
  std::int64_t judged_ = 0;
};

}  // namespace

Result<AutoLayout> auto_layout(const AutoLayoutRequest& request) {
  if (auto checked = check_request(request); !checked.ok()) return std::move(checked).error();
  LayoutScorer scorer(request);
  Search search(request, scorer);
  // What looks hopeless is looked at only where nothing else fits.
  for (const double worth : {kWorthSimulating, std::numeric_limits<double>::infinity()}) {
    auto candidates = layout_candidates(request, scorer, kPerChoice, worth);
    if (!candidates.ok()) return std::move(candidates).error();
    if (auto done = search.run(std::move(candidates).value()); !done.ok())
      return std::move(done).error();
    if (search.found()) break;
  }
  const std::int64_t simulated = search.simulated(), judged = search.judged();
  auto scored = std::move(search).results();
  ScoredLayout& best = scored.front();
  if (!best.fits) return memory_error(request, scored);
  AutoLayout made;
  made.reasons = layout_reasons(request, scored);
  made.layout = std::move(best.placed.layout);
  made.plan = std::move(best.placed.plan);
  made.groups = std::move(best.placed.groups);
  made.parallelisms = std::move(best.candidate.parallelisms);
  made.predicted = std::move(best.step);
  made.simulated = simulated;
  made.judged = judged;
  return made;
}

Result<PredictedStep> predict_step(const ParallelPlan& plan, const AutoLayoutRequest& request,
                                   const std::vector<Parallelism>& parallelisms) {
  if (auto checked = check_request(request); !checked.ok()) return std::move(checked).error();
  return LayoutScorer(request).score(plan, parallelisms);
}

}  // namespace troupe::scheduler
