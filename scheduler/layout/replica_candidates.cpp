#include "scheduler/layout/replica_candidates.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/device_shares.hpp"
#include "scheduler/layout/layout_degrees.hpp"
#include "scheduler/layout/layout_estimate.hpp"
#include "scheduler/layout/layout_request.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

constexpr std::int32_t kAllBelow = 16;  ///< So many llm replicas are all tried.
constexpr std::size_t kSharesCut = 64;  ///< Shares of one number of llm replicas that may be cut.

std::int32_t width(Parallelism p) { return p.tp * p.cp; }

/// What the fullest stage of a replica holds with so many microbatches in flight.
double fullest_bytes(const PipelineShape& shape, const LayerWeights& weights,
                     double microbatches_max, double behind) {
  const Track& track = shape.tracks.front();
  double most = 0;
  for (std::int32_t s = 0; s < track.segments(); ++s) {
    const double in_flight = std::min(microbatches_max, track.segments() - s + behind);
    double bytes = 0;
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l)
      bytes += weights.state_bytes[track.layers[at(l)]] +
               in_flight * weights.activation_bytes[track.layers[at(l)]];
    most = std::max(most, bytes);
  }
  return most;
}

/// The candidates of one number of llm replicas, grouping and choice of degrees.
class ReplicaShapes {
 public:
  ReplicaShapes(const AutoLayoutRequest& request, const std::vector<Parallelism>& parallelisms,
                const std::vector<std::vector<ModuleId>>& groups, std::int32_t llm_replicas,
                std::shared_ptr<const LayerWeights> weights)
      : request_(request),
        parallelisms_(parallelisms),
        groups_(groups),
        weights_(std::move(weights)),
        shapes_(request.model->graph(), *weights_) {
    const auto own = std::max<std::int64_t>(request.global_batch / llm_replicas, 1);
    share_.microbatches = std::min(request.microbatches, own);
    share_.llm_replicas = llm_replicas;
    share_.devices = request.cluster.devices();
    share_.may_idle = request.planned_only;
    share_.device_memory = memory();
    share_.count = kSharesCut;
    share_.reduction_ms = [this](std::int32_t replicas, double bytes) {
      return bytes * reduction_ms_per_byte(request_, replicas);
    };
    for (const auto& modules : groups) share_.groups.push_back(load_of(modules));
  }

  /// The cheapest `count` that keep the pins and fit with one microbatch, cheapest first by bound.
  std::vector<LayoutCandidate> best(std::size_t count, double worst_ms) {
    std::vector<LayoutCandidate> made;
    share_.bound_max_ms = worst_ms;
    const auto shares = share_devices(share_);
    if (shares.empty() && memory() > 0) remember_least();
    for (const DeviceShare& share : shares) {
      if (made.size() == count) break;
      shared_ = true;
      if (auto candidate = cut(share.groups)) made.push_back(std::move(*candidate));
    }
    return made;
  }

  bool shared() const { return shared_; }        ///< Devices could be shared out.
  bool pins_kept() const { return pins_kept_; }  ///< With the pinned numbers of stages.
  double least_bytes() const { return least_bytes_; }
  const Error& place_error() const { return place_error_; }

 private:
  double memory() const { return static_cast<double>(request_.device_memory.count()); }

  /// What devices would have to hold at least, were it not for their memory.
  void remember_least() {
    ShareRequest roomy = share_;
    roomy.device_memory = 0;
    for (const DeviceShare& share : share_devices(roomy)) {
      double fullest = 0;
      for (std::size_t g = 0; g < share.groups.size(); ++g)
        fullest = std::max({fullest, share_.groups[g].bytes / share.groups[g].stages,
                            share_.groups[g].largest_layer_bytes});
      if (fullest > memory()) least_bytes_ = std::min(least_bytes_, fullest);
    }
  }

  GroupLoad load_of(const std::vector<ModuleId>& modules) const {
    GroupLoad load;
    load.layers = 0;
    load.width = width(parallelisms_[modules.front().index()]);
    load.pinned = pinned_number(request_, modules);
    for (std::size_t i = 0; i < weights_->layers.size(); ++i) {
      const ModuleId module = weights_->layers[i].module;
      if (std::find(modules.begin(), modules.end(), module) == modules.end()) continue;
      const double bytes = weights_->state_bytes[i] + weights_->activation_bytes[i];
      ++load.layers;
      load.work_ms += weights_->work_ms[i];
      load.largest_layer_ms = std::max(load.largest_layer_ms, weights_->work_ms[i]);
      load.bytes += bytes;
      load.largest_layer_bytes = std::max(load.largest_layer_bytes, bytes);
      if (!request_.model->graph().at(module).freeze)
        load.trained_bytes += weights_->state_bytes[i];
    }
    return load;
  }

  GroupTimes times_of(const PipelineShape& shape) const {
    GroupTimes times{shape.slowest_ms, 0};
    const Track& track = shape.tracks.front();
    for (std::int32_t s = 0; s < track.segments(); ++s) {
      double trained = 0;
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const auto layer = track.layers[at(l)];
        if (!request_.model->graph().at(weights_->layers[layer].module).freeze)
          trained += weights_->state_bytes[layer];
      }
      times.trained_bytes = std::max(times.trained_bytes, trained);
    }
    return times;
  }

  /// Adds the shapes and copies of one group; false where it does not keep the pins or fit.
  bool add_group(std::size_t g, const std::vector<GroupShare>& shares, LayoutCandidate& candidate,
                 std::vector<GroupTimes>& times) {
    const GroupShare& share = shares[g];
    const bool llm = g + 1 == shares.size();
    // Behind an encoder lie the stages of as many llm replicas as it feeds.
    const double fed = llm ? 0 : 1.0 * share_.llm_replicas / share.replicas;
    const double behind = fed * shares.back().stages;
    const double microbatches = static_cast<double>(share_.microbatches) * (llm ? 1 : fed);
    for (std::int32_t more = share.longer > 0 ? 1 : 0; more >= 0; --more) {
      auto shape = shapes_.replica(groups_[g], share.stages + more);
      if (!keeps_pins(request_, shape, *weights_)) return false;
      const double bytes = fullest_bytes(shape, *weights_, 1, behind);
      if (memory() > 0 && bytes > memory()) {
        least_bytes_ = std::min(least_bytes_, bytes);
        over_memory_ = true;
      }
      candidate.may_fit =
          candidate.may_fit &&
          (memory() == 0 ||
           fullest_bytes(shape, *weights_, std::max(1.0, microbatches), behind) <= memory());
      if (more == 0) times.push_back(times_of(shape));
      const auto copies = more > 0 ? share.longer : share.replicas - share.longer;
      candidate.shape_of.insert(candidate.shape_of.end(), at(copies), candidate.shapes.size());
      candidate.shapes.push_back(std::move(shape));
    }
    candidate.numbers.push_back(share.replicas);
    return true;
  }

  std::optional<LayoutCandidate> cut(const std::vector<GroupShare>& shares) {
    LayoutCandidate candidate{parallelisms_, {}, {}, weights_};
    candidate.module_groups = groups_;
    std::vector<GroupTimes> times;
    over_memory_ = false;
    for (std::size_t g = 0; g < shares.size(); ++g)
      if (!add_group(g, shares, candidate, times)) return std::nullopt;
    pins_kept_ = true;
    if (over_memory_) return std::nullopt;
    candidate.estimate_ms = shared_step_ms(share_, shares, times);
    if (auto groups = device_groups(request_, candidate); !groups.ok()) {
      place_error_ = std::move(groups).error();
      return std::nullopt;
    }
    return candidate;
  }

  const AutoLayoutRequest& request_;
  const std::vector<Parallelism>& parallelisms_;
  const std::vector<std::vector<ModuleId>>& groups_;
  const std::shared_ptr<const LayerWeights> weights_;
  PipelineShapes shapes_;
  ShareRequest share_;
  bool shared_ = false, pins_kept_ = false, over_memory_ = false;
  double least_bytes_ = std::numeric_limits<double>::infinity();
  Error place_error_;
};

/// Collects candidates, and remembers why there are none.
class ReplicaSearch {
 public:
  ReplicaSearch(const AutoLayoutRequest& request, LayoutScorer& scorer, std::size_t per_choice,
                double worth)
      : request_(request), scorer_(scorer), per_choice_(per_choice), worth_(worth) {}

  Status add(const std::vector<Parallelism>& parallelisms,
             const std::vector<std::vector<ModuleId>>& groups) {
    for (const auto llm_replicas : llm_counts(parallelisms, groups)) {
      auto weighed = scorer_.weights(llm_replicas, parallelisms);
      if (!weighed.ok()) return std::move(weighed).error();
      ReplicaShapes shapes(request_, parallelisms, groups, llm_replicas,
                           std::make_shared<const LayerWeights>(std::move(weighed).value()));
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
  /// Numbers of llm replicas worth a look, ascending.
  std::vector<std::int32_t> llm_counts(const std::vector<Parallelism>& parallelisms,
                                       const std::vector<std::vector<ModuleId>>& groups) const {
    std::int32_t left = request_.cluster.devices();
    for (std::size_t g = 0; g + 1 < groups.size(); ++g)
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
    std::string numbers;
    for (const auto& pin : number_pins(request_))
      numbers += (numbers.empty() ? "" : " and ") + pin.text();
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

Result<std::vector<LayoutCandidate>> replica_candidates(const AutoLayoutRequest& request,
                                                        LayoutScorer& scorer,
                                                        std::size_t per_choice, double worth) {
  ReplicaSearch search(request, scorer, per_choice, worth);
  for (const auto& degrees : degree_choices(request, scorer))
    for (const auto& groups : module_groupings(request))
      if (auto added = search.add(degrees, groups); !added.ok()) return std::move(added).error();
  return std::move(search).finish();
}

}  // namespace troupe::scheduler
