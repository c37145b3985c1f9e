#include "scheduler/layout/layout_search.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace troupe::scheduler {

namespace {

constexpr std::size_t kRefined = 3;       ///< Candidates whose cuts are moved.
constexpr double kCutsExhaustive = 400;   ///< Ways to cut a pipeline that are all tried.
constexpr double kWorthSimulating = 1.5;  ///< Times the least estimate.
constexpr double kFarOff = 1.05;          ///< Times an estimate: what comes near it takes less.
constexpr int kKindsBeyond = 4;           ///< That are simulated beyond the budget.

double fullest(const PredictedStep& step) {
  return step.peak_memory_bytes.empty()
             ? 0
             : *std::max_element(step.peak_memory_bytes.begin(), step.peak_memory_bytes.end());
}

/// Sum of the squares of the stages' work: least where the work is shared out evenly.
double unevenness(const PredictedStep& step) {
  double sum = 0;
  for (const double ms : step.stage_ms) sum += ms * ms;
  return sum;
}

/// What layouts differ in besides their cuts: numbers of copies, form, degrees.
using LayoutKind =
    std::tuple<std::int32_t, std::vector<std::int32_t>, PipelineForm, std::vector<Parallelism>>;

LayoutKind kind_of(const LayoutCandidate& candidate) {
  return {candidate.pipelines(), candidate.numbers, candidate.shapes.front().form,
          candidate.parallelisms};
}

bool better(const ScoredLayout& a, const ScoredLayout& b) {
  if (a.fits != b.fits) return a.fits;
  constexpr double kEqual = 1e-9;
  const double difference = a.step.step_ms - b.step.step_ms;
  if (std::abs(difference) > kEqual * b.step.step_ms) return difference < 0;
  return unevenness(a.step) < (1 - kEqual) * unevenness(b.step);
}

double ways(const LayoutCandidate& candidate) {
  double count = 1;
  for (const auto& shape : candidate.shapes)
    for (const Track& track : shape.tracks)
      for (std::int32_t i = 1; i < track.segments(); ++i)
        count *= (static_cast<double>(track.layers.size()) - i) / i;
  return count;
}

}  // namespace

Status LayoutSearch::run(const MakeCandidates& make, bool to_the_end, double known_ms) {
  for (const double worth : {kWorthSimulating, std::numeric_limits<double>::infinity()}) {
    auto candidates = make(worth);
    if (!candidates.ok()) {
      if (candidates.error().code != Errc::infeasible) return std::move(candidates).error();
      why_ = std::move(candidates).error();
      return Done{};
    }
    if (auto done = look_at(std::move(candidates).value(), known_ms); !done.ok()) return done;
    if (found() || !to_the_end) break;
  }
  return Done{};
}

/// May be called again, with more candidates: nothing is remembered but what was simulated. Where
/// one simulated step takes all of the budget, estimates alone would have the choice, and theirs
/// may not fit, or take twice as long as they say.
Status LayoutSearch::look_at(std::vector<LayoutCandidate> candidates, double known_ms) {
  actions_ = 0;
  scored_.clear();
  refined_.clear();
  std::set<LayoutKind> kinds;     // Of those that were simulated.
  std::optional<double> best_ms;  // Of those that fit.
  int beyond = 0;
  const auto promises_less = [&](const LayoutCandidate& candidate) {
    return !best_ms || kFarOff * candidate.estimate_ms < std::min(*best_ms, known_ms);
  };
  for (auto& candidate : candidates) {
    const bool is_within = scored_.empty() || may_simulate(candidate, 0.5);
    if (!is_within &&
        (beyond == kKindsBeyond || !promises_less(candidate) || kinds.contains(kind_of(candidate))))
      continue;
    if (!is_within) ++beyond;
    kinds.insert(kind_of(candidate));
    const double actions = actions_;
    if (auto done = simulate(std::move(candidate)); !done.ok()) return done;
    if (!is_within) actions_ = actions;  // What is left is for cuts.
    const double step_ms = scored_.back().step.step_ms;
    if (scored_.back().fits) best_ms = std::min(step_ms, best_ms.value_or(step_ms));
  }
  sort();
  for (std::size_t i = 0; i < std::min(kRefined, scored_.size()); ++i)
    if (auto done = refine(scored_[i]); !done.ok()) return done;
  // First, so that more even cuts win where they are no faster.
  scored_.insert(scored_.begin(), std::make_move_iterator(refined_.begin()),
                 std::make_move_iterator(refined_.end()));
  sort();
  return Done{};
}

std::vector<std::size_t> LayoutSearch::to_judge(std::size_t most) const {
  std::map<LayoutKind, std::vector<const HandLayout*>> seen;
  std::vector<std::size_t> chosen;
  double actions = 0;
  for (std::size_t i = 0; i < scored_.size() && chosen.size() < most; ++i) {
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
  return chosen;
}

Status LayoutSearch::judge(const std::vector<std::size_t>& chosen) {
  if (chosen.empty()) return Done{};
  std::vector<ScoredLayout> judged;
  for (const auto i : chosen) {
    auto step = request_.judge(scored_[i].placed.plan);
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

void LayoutSearch::prefer_fewer_devices() {
  if (!request_.planned_only || !found()) return;
  const double limit = (1 + kWorthDevices) * scored_.front().step.step_ms;
  const auto end = std::find_if(scored_.begin(), scored_.end(), [&](const auto& scored) {
    return !scored.fits || scored.step.step_ms > limit;
  });
  const auto least = std::min_element(scored_.begin(), end, [](const auto& a, const auto& b) {
    return devices_of(a) < devices_of(b);
  });
  std::rotate(scored_.begin(), least, std::next(least));
}

double LayoutSearch::cost(const LayoutCandidate& candidate) const {
  return scorer_.actions(candidate.pipelines(), candidate.groups());
}
/// Half of the work is left to moving cuts.
bool LayoutSearch::may_simulate(const LayoutCandidate& candidate, double share) const {
  return actions_ + cost(candidate) <= share * actions_max_;
}

Result<ScoredLayout> LayoutSearch::score(LayoutCandidate candidate) {
  auto placed = place(request_, candidate);
  if (!placed.ok()) return std::move(placed).error();
  actions_ += cost(candidate);
  ++simulated_;
  auto step = scorer_.score(placed.value().plan);
  const bool possible = step.ok();
  // To tell what it would take at least.
  for (const std::int32_t window : {1, 0})
    if (!step.ok() && step.error().code == Errc::infeasible)
      step = scorer_.score(placed.value().plan, 0, window);
  if (!step.ok()) return std::move(step).error();
  const bool enough = possible && fits(step.value());
  return ScoredLayout{std::move(candidate), std::move(placed).value(), std::move(step).value(),
                      enough};
}

bool LayoutSearch::fits(const PredictedStep& step) const {
  const double memory = static_cast<double>(request_.device_memory.count());
  return memory == 0 || fullest(step) <= memory;
}

Status LayoutSearch::simulate(LayoutCandidate candidate) {
  auto scored = score(std::move(candidate));
  if (!scored.ok()) return std::move(scored).error();
  scored_.push_back(std::move(scored).value());
  return Done{};
}

void LayoutSearch::sort() {
  std::stable_sort(scored_.begin(), scored_.end(), [](const auto& a, const auto& b) {
    return a.fits != b.fits ? a.fits : a.step.step_ms < b.step.step_ms;
  });
}

/// Moves cuts of a candidate as long as the simulator likes it better; where there are few ways
/// to cut, tries all. Pipelines of equal size keep equal cuts.
Status LayoutSearch::refine(const ScoredLayout& scored) {
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

/// Scores a candidate with moved cuts if the pins allow it; true if it became the best.
Result<bool> LayoutSearch::challenge(LayoutCandidate candidate, ScoredLayout& best) {
  for (const auto& shape : candidate.shapes)
    if (!keeps_pins(request_, shape, *candidate.weights)) return false;
  if (!may_simulate(candidate, 1)) return false;
  auto scored = score(std::move(candidate));
  if (!scored.ok()) return std::move(scored).error();
  if (!better(scored.value(), best)) return false;
  best = std::move(scored).value();
  return true;
}

/// Every position of cut `cut` of `track` of `shape`, and of all cuts after it.
Status LayoutSearch::try_all(const LayoutCandidate& candidate, std::size_t shape, std::size_t track,
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

Status LayoutSearch::climb(ScoredLayout& best) {
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

}  // namespace troupe::scheduler
