#include "scheduler/layout/replica_candidates.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/layout_degrees.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

constexpr std::int32_t kAllBelow = 16;  ///< So many llm replicas are all tried.
std::int32_t width(Parallelism p) { return p.tp * p.cp; }

/// Collects candidates, and remembers why there are none.
class ReplicaSearch {
 public:
  ReplicaSearch(const AutoLayoutRequest& request, LayoutScorer& scorer, Sharing sharing,
                std::size_t per_choice, double worth)
      : request_(request),
        scorer_(scorer),
        sharing_(sharing),
        per_choice_(per_choice),
        worth_(worth) {}

  Status add(const std::vector<Parallelism>& parallelisms,
             const std::vector<std::vector<ModuleId>>& groups) {
    if (sharing_ == Sharing::colocated && !divides(parallelisms, groups)) return Done{};
    for (const auto llm_replicas : llm_counts(parallelisms, groups)) {
      auto weighed = scorer_.weights(llm_replicas, parallelisms);
      if (!weighed.ok()) return std::move(weighed).error();
      ReplicaShapes shapes(request_, parallelisms, groups, llm_replicas,
                           std::make_shared<const LayerWeights>(std::move(weighed).value()),
                           sharing_);
      for (auto& candidate : shapes.best(per_choice_, worth_ * best_ms_)) {
        best_ms_ = std::min(best_ms_, candidate.estimate_ms);
        candidates_.push_back(std::move(candidate));
      }
      shared_ = shared_ || shapes.shared();
      pins_kept_ = pins_kept_ || shapes.pins_kept();
      least_bytes_ = std::min(least_bytes_, shapes.least_bytes());
      if (!shapes.place_error().message.empty()) place_error_ = shapes.place_error();
    }
    return Done{};
  }

  Result<std::vector<LayoutCandidate>> finish() && {
    if (candidates_.empty()) return reason();
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) {
      return a.may_fit != b.may_fit ? a.may_fit : a.estimate_ms < b.estimate_ms;
    });
    return std::move(candidates_);
  }

 private:
  /// Whether stages of encoders fit side by side onto one of the llm.
  static bool divides(const std::vector<Parallelism>& parallelisms,
                      const std::vector<std::vector<ModuleId>>& groups) {
    return width(parallelisms[groups.back().front().index()]) %
               width(parallelisms[groups.front().front().index()]) ==
           0;
  }

  /// Numbers of llm replicas worth a look, ascending.
  std::vector<std::int32_t> llm_counts(const std::vector<Parallelism>& parallelisms,
                                       const std::vector<std::vector<ModuleId>>& groups) const {
    std::int32_t left = request_.cluster.devices();
    for (std::size_t g = 0; g + 1 < groups.size() && sharing_ == Sharing::disjoint; ++g)
      left -= width(parallelisms[groups[g].front().index()]) *
              pinned_number(request_, groups[g]).value_or(1);
    const auto most = std::min<std::int64_t>(
        left / width(parallelisms[groups.back().front().index()]), request_.global_batch);
    if (const auto pinned = pinned_number(request_, groups.back()))
      return *pinned <= most ? std::vector{*pinned} : std::vector<std::int32_t>{};
    std::vector<std::int32_t> counts;
    for (std::int32_t count = 1; count <= most; ++count)
      if (count <= kAllBelow || request_.global_batch % count == 0) counts.push_back(count);
    return counts;
  }

  Error reason() const {
    std::vector<std::string> texts;
    for (const auto& pin : number_pins(request_)) texts.push_back(pin.text());
    const std::string numbers = joined_by_and(texts);
    const auto none = [](std::string message, std::string where, std::string fix) {
      return Error{Errc::infeasible, std::move(message), std::move(where), std::move(fix)};
    };
    const auto memory = static_cast<double>(request_.device_memory.count());
    if (least_bytes_ < std::numeric_limits<double>::infinity())
      return none("no layout with " + numbers + " fits: the fullest device needs at least " +
                      byte_text(least_bytes_) + " and has " + byte_text(memory),
                  "memory",
                  "nearest choice: devices of " + byte_text(least_bytes_) +
                      ", more devices, or smaller numbers");
    if (!place_error_.message.empty()) return place_error_;
    if (shared_ && !pins_kept_)
      return none("no layout of " + to_string(request_.cluster.devices()) + " devices with " +
                      numbers + " has the pinned numbers of stages",
                  "parallel", "leave the pins of pp out");
    return none(to_string(request_.cluster.devices()) + " devices cannot be shared out to " +
                    numbers + (request_.planned_only ? "" : " so that each has a layer"),
                "parallel", "change or leave out one of these, or use other numbers of devices");
  }

  const AutoLayoutRequest& request_;
  LayoutScorer& scorer_;
  const Sharing sharing_;
  const std::size_t per_choice_;
  const double worth_;
  std::vector<LayoutCandidate> candidates_;
  double best_ms_ = std::numeric_limits<double>::infinity();
  bool shared_ = false, pins_kept_ = false;
  double least_bytes_ = std::numeric_limits<double>::infinity();
  Error place_error_;
};

bool agree(const std::vector<NumberPin>& pins) {
  return std::all_of(pins.begin(), pins.end(),
                     [&](const NumberPin& pin) { return pin.number == pins.front().number; });
}

std::vector<NumberPin> pins_of(const AutoLayoutRequest& request,
                               const std::vector<ModuleId>& modules) {
  auto pins = number_pins(request);
  std::erase_if(pins, [&](const NumberPin& pin) {
    return std::find(modules.begin(), modules.end(), pin.module) == modules.end();
  });
  return pins;
}

}  // namespace

std::vector<NumberPin> number_pins(const AutoLayoutRequest& request) {
  std::vector<NumberPin> pins;
  for (const auto& [name, own] : request.pins)
    if (own.dp)
      pins.push_back({"parallel." + name + ".dp", request.model->graph().find(name), *own.dp});
  std::sort(pins.begin(), pins.end(),
            [](const auto& a, const auto& b) { return a.module < b.module; });
  return pins;
}

std::vector<std::vector<std::vector<ModuleId>>> module_groupings(const AutoLayoutRequest& request) {
  const ModelGraph& model = request.model->graph();
  auto apart = joined_encoders(model);
  if (apart.empty()) return {};
  std::vector<ModuleId> together;
  for (const auto& modules : apart) together.insert(together.end(), modules.begin(), modules.end());
  std::sort(together.begin(), together.end());
  std::vector<std::vector<std::vector<ModuleId>>> groupings;
  if (agree(pins_of(request, together))) groupings.push_back({together, {model.llm()}});
  if (apart.size() > 1) {
    apart.push_back({model.llm()});
    groupings.push_back(std::move(apart));
  }
  return groupings;
}

std::optional<std::int32_t> pinned_number(const AutoLayoutRequest& request,
                                          const std::vector<ModuleId>& modules) {
  const auto pins = pins_of(request, modules);
  return pins.empty() ? std::nullopt : std::optional(pins.front().number);
}

bool allows_one_number(const AutoLayoutRequest& request) { return agree(number_pins(request)); }

bool allows_own_numbers(const AutoLayoutRequest& request) {
  if (request.one_number || request.cluster.devices() < 2) return false;
  const auto groupings = module_groupings(request);
  return std::any_of(groupings.begin(), groupings.end(), [&](const auto& groups) {
    const auto first = pinned_number(request, groups.front());
    return std::any_of(groups.begin(), groups.end(), [&](const auto& modules) {
      const auto pinned = pinned_number(request, modules);
      return !pinned || pinned != first;
    });
  });
}

bool allows_colocated(const AutoLayoutRequest& request) {
  return has_phases(request.schedule) && allows_own_numbers(request);
}

Result<std::vector<LayoutCandidate>> replica_candidates(const AutoLayoutRequest& request,
                                                        LayoutScorer& scorer, Sharing sharing,
                                                        std::size_t per_choice, double worth) {
  ReplicaSearch search(request, scorer, sharing, per_choice, worth);
  for (const auto& degrees : degree_choices(request, scorer))
    for (const auto& groups : module_groupings(request))
      if (auto added = search.add(degrees, groups); !added.ok()) return std::move(added).error();
  return std::move(search).finish();
}

}  // namespace troupe::scheduler
