#include "scheduler/layout/layout_candidates.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/layout_degrees.hpp"
#include "scheduler/layout/layout_estimate.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/layout/layout_sizes.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

Error none(std::string message, std::string where, std::string fix) {
  return {Errc::infeasible, std::move(message), std::move(where), std::move(fix)};
}

/// Everything that layouts of one number of pipelines and one choice of degrees have in common.
struct Choice {
  const std::vector<Parallelism>& parallelisms;
  StageWidths widths;
  LayoutEstimate estimate;
  PipelineShapes shapes;

  /// Groups that so many devices of a pipeline make at most.
  std::int32_t groups(std::int32_t devices) const {
    return devices / std::min(widths.encoder, widths.llm);
  }
};

/// Collects candidates, and remembers why others were dropped.
class Collector {
 public:
  Collector(const AutoLayoutRequest& request, LayoutScorer& scorer, std::size_t per_choice,
            double worth)
      : request_(request), scorer_(scorer), per_choice_(per_choice), worth_(worth) {
    for (const auto& [name, pins] : request.pins) pinned_stages_ = pinned_stages_ || pins.pp;
    pins_kept_ = !pinned_stages_;
  }

  Status add(const std::vector<Parallelism>& parallelisms) {
    const ModelGraph& model = request_.model->graph();
    const auto width = [](Parallelism p) { return p.tp * p.cp; };
    const StageWidths widths{width(parallelisms.front()), width(parallelisms[model.llm().index()])};
    const PipelineSizes sizes(request_, widths);
    if (least_devices_ == 0 || sizes.least() < least_devices_) {
      least_devices_ = sizes.least();
      least_degrees_ = {parallelisms.front(), parallelisms[model.llm().index()]};
    }
    for (const auto pipelines : sizes.pipeline_counts()) {
      most_devices_ = std::max(most_devices_, sizes.most() * pipelines);
      const auto shares = sizes.shares(pipelines);
      if (shares.empty()) continue;
      sized_ = true;
      auto weighed = scorer_.weights(pipelines, parallelisms);
      if (!weighed.ok()) return std::move(weighed).error();
      const auto weights = std::make_shared<const LayerWeights>(std::move(weighed).value());
      Choice choice{parallelisms, widths, LayoutEstimate(request_, weights, pipelines),
                    PipelineShapes(model, *weights, widths, has_phases(request_.schedule))};
      remember_largest(choice.estimate);
      shapes_seen_ = shapes_seen_ || shares.front() <= sizes.most();
      if (!hopeless(choice, shares.back())) add_sized(choice, shares);
      for (const auto size : sizes.smaller(shares.back()))
        if (!hopeless(choice, size)) add_sized(choice, std::vector(shares.size(), size));
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
  /// Remembers the layer that is hardest to hold, where it is easiest.
  void remember_largest(const LayoutEstimate& estimate) {
    if (layer_.module.valid() && estimate.largest_layer_bytes() >= layer_bytes_) return;
    layer_bytes_ = estimate.largest_layer_bytes();
    layer_ = estimate.largest_layer();
  }

  /// No shape on so many devices can come near the best estimate so far.
  bool hopeless(const Choice& choice, std::int32_t size) const {
    return choice.estimate.least_ms(choice.groups(size)) > worth_ * best_ms_;
  }

  /// No shape on so many devices fits.
  bool too_small(const Choice& choice, std::int32_t size) {
    const double least = choice.estimate.least_bytes(choice.groups(size));
    if (!limited() || least <= memory()) return false;
    least_bytes_ = std::min(least_bytes_, least);
    return true;
  }

  bool limited() const { return request_.device_memory.count() > 0; }
  double memory() const { return static_cast<double>(request_.device_memory.count()); }

  /// True if a shape keeps the pins and fits with one microbatch.
  bool usable(const Choice& choice, const PipelineShape& shape) {
    if (!keeps_pins(request_, shape, *choice.estimate.weights())) return false;
    pins_kept_ = true;
    if (!limited()) return true;
    const double bytes = choice.estimate.least_bytes(shape);
    least_bytes_ = std::min(least_bytes_, bytes);
    return bytes <= memory();
  }

  /// The usable ones of `size` devices that `search` likes best.
  std::vector<FoundShape> find(Choice& choice, std::int32_t size, ShapeSearch search) {
    if (!pinned_stages_ && too_small(choice, size)) return {};
    // A pin may ask for any number of stages.
    search.worth = pinned_stages_ ? std::numeric_limits<double>::infinity() : worth_;
    search.cost = [this, &choice, cost = std::move(search.cost)](const PipelineShape& shape) {
      return usable(choice, shape) ? cost(shape) : std::nullopt;
    };
    return choice.shapes.best(size, search);
  }

  /// The shape with the fastest slowest device, and that of each form.
  std::vector<FoundShape> fastest(Choice& choice, std::int32_t size) {
    ShapeSearch search;
    search.cost = [](const PipelineShape& shape) { return std::optional(shape.slowest_ms); };
    search.least_cost = [](PipelineForm, std::int32_t, double slowest_ms) { return slowest_ms; };
    return find(choice, size, std::move(search));
  }

  /// Where pipelines have two sizes, those of the larger one have the form of the others.
  static const PipelineShape* alike(const std::vector<FoundShape>& larger, PipelineForm form) {
    if (larger.empty()) return nullptr;
    const auto same = std::find_if(larger.begin(), larger.end(),
                                   [&](const auto& found) { return found.shape.form == form; });
    return same == larger.end() ? &larger.front().shape : &same->shape;
  }

  void add_sized(Choice& choice, const std::vector<std::int32_t>& sizes) {
    const LayoutEstimate& estimate = choice.estimate;
    const bool mixed = sizes.back() != sizes.front();
    std::vector<FoundShape> larger;
    if (mixed) larger = fastest(choice, sizes.front());
    if (mixed && larger.empty()) return;
    ShapeSearch search;
    search.count = per_choice_;
    search.cost = [&](const PipelineShape& shape) {
      const auto* other = alike(larger, shape.form);
      const double ms = estimate.ms(shape);
      return std::optional(other ? std::max(ms, estimate.ms(*other)) : ms);
    };
    search.least_cost = [&](PipelineForm form, std::int32_t groups, double slowest_ms) {
      return estimate.least_ms(form, groups, slowest_ms);
    };
    auto best = find(choice, sizes.back(), std::move(search));
    if (best.empty()) return;
    fits_ = true;
    best_ms_ = std::min(best_ms_, best.front().cost);
    for (auto& [shape, ms] : best) {
      LayoutCandidate candidate{choice.parallelisms, {}, {}, estimate.weights(), ms};
      candidate.may_fit = estimate.may_fit(shape);
      const auto* other = alike(larger, shape.form);
      candidate.shapes.push_back(std::move(shape));
      if (other) candidate.shapes.push_back(*other);
      for (const auto size : sizes) candidate.shape_of.push_back(size == sizes.back() ? 0 : 1);
      add_placed(std::move(candidate), choice.widths);
    }
  }

  /// Stages of one width fill nodes without holes; others may not fit.
  void add_placed(LayoutCandidate candidate, StageWidths widths) {
    if (widths.encoder != widths.llm)
      if (auto groups = device_groups(request_, candidate); !groups.ok()) {
        place_error_ = std::move(groups).error();
        return;
      }
    candidates_.push_back(std::move(candidate));
  }

  Error reason() const {
    const auto& cluster = request_.cluster;
    const ModelGraph& model = request_.model->graph();
    if (!sized_) return room_error();
    if (!shapes_seen_)
      return none(to_string(cluster.devices()) + " devices are more than the job can use: " +
                      to_string(request_.global_batch) + " samples per step and " +
                      to_string(most_layers(model)) + " layers allow " + to_string(most_devices_),
                  "cluster",
                  "nearest choice: " + to_string(most_devices_) +
                      " devices, or a larger train.global_batch_size");
    if (!pins_kept_) return pins_error();
    if (fits_) return place_error_;
    if (layer_bytes_ > memory())
      return none(
          "layer " + model.at(layer_.module).layers[at(layer_.layer)].name + " alone needs " +
              byte_text(layer_bytes_) + " with one microbatch, a device has " + byte_text(memory()),
          "memory",
          "nearest choice: devices of " + byte_text(layer_bytes_) + ", or more train.microbatches");
    return none("no layout fits: the fullest device needs at least " + byte_text(least_bytes_) +
                    " and has " + byte_text(memory()),
                "memory",
                "nearest choice: devices of " + byte_text(least_bytes_) +
                    ", more devices, or more train.microbatches");
  }

  static std::size_t most_layers(const ModelGraph& model) {
    std::size_t count = 0;
    for (const auto& module : model.modules) count += module.layers.size();
    return count;
  }

  /// The pipelines that pins ask for find no devices.
  Error room_error() const {
    const auto& cluster = request_.cluster;
    const std::int32_t dp = pinned_pipelines(request_);
    const std::int32_t pipelines = std::max(dp, 1);
    const auto text = [](Parallelism p) {
      return "tp " + to_string(p.tp) + " cp " + to_string(p.cp);
    };
    const auto& [encoders, llm] = least_degrees_;
    const std::int32_t devices = pipelines * least_devices_;
    const std::int32_t possible = cluster.devices() / least_devices_;
    return none((pipelines == 1 ? "a pipeline takes " : to_string(pipelines) + " pipelines take ") +
                    "at least " + to_string(devices) + " devices, there are " +
                    to_string(cluster.devices()) + ": stages of encoders have " + text(encoders) +
                    ", those of the llm " + text(llm),
                "cluster",
                possible > 0 && possible < dp
                    ? "nearest choice: dp = " + to_string(possible)
                    : "nearest choice: " + to_string(devices) + " devices, or smaller tp and cp");
  }

  /// Which pinned module can be given what.
  Error pins_error() const {
    std::string text;
    for (const auto& [name, pins] : request_.pins)
      if (pins.pp)
        text += (text.empty() ? "" : ", ") + std::string("parallel.") + name +
                ".pp = " + to_string(*pins.pp);
    return none("no layout of " + to_string(request_.cluster.devices()) + " devices has " + text,
                "parallel", nearest_pins());
  }

  /// The stages that the best layout without pipeline pins has. Layouts of such a request fail no
  /// pin, so that this ends.
  std::string nearest_pins() const {
    AutoLayoutRequest free = request_;
    for (auto& [name, pins] : free.pins) pins.pp.reset();
    LayoutScorer scorer(free);
    const auto candidates = layout_candidates(free, scorer, 1, 1);
    if (!candidates.ok()) return "leave the pins out";
    const auto& best = candidates.value().front();
    std::string text;
    for (const auto& [name, pins] : request_.pins)
      if (pins.pp)
        text += (text.empty() ? "nearest choice: " : ", ") + std::string("parallel.") + name +
                ".pp = " +
                to_string(stages_of(best.shapes.front(), *best.weights,
                                    request_.model->graph().find(name)));
    return text;
  }

  const AutoLayoutRequest& request_;
  LayoutScorer& scorer_;
  const std::size_t per_choice_;
  const double worth_;
  std::vector<LayoutCandidate> candidates_;
  bool pinned_stages_ = false;  ///< Then shapes are made even where memory rules them out.
  bool sized_ = false, shapes_seen_ = false, pins_kept_ = false, fits_ = false;
  Error place_error_;
  double least_bytes_ = std::numeric_limits<double>::infinity();
  double layer_bytes_ = 0;
  double best_ms_ = std::numeric_limits<double>::infinity();  ///< Least estimate.
  LayerId layer_;
  std::int64_t most_devices_ = 0;
  std::int32_t least_devices_ = 0;
  std::pair<Parallelism, Parallelism> least_degrees_;  ///< Of encoders and llm.
};

}  // namespace

bool keeps_pins(const AutoLayoutRequest& request, const PipelineShape& shape,
                const LayerWeights& weights) {
  const ModelGraph& model = request.model->graph();
  return std::all_of(request.pins.begin(), request.pins.end(), [&](const auto& entry) {
    const auto& pp = entry.second.pp;
    const auto stages = pp ? stages_of(shape, weights, model.find(entry.first)) : 0;
    return stages == 0 || stages == *pp;
  });
}

Result<std::vector<LayoutCandidate>> layout_candidates(const AutoLayoutRequest& request,
                                                       LayoutScorer& scorer, std::size_t per_choice,
                                                       double worth) {
  Collector collector(request, scorer, per_choice, worth);
  for (const auto& degrees : degree_choices(request, scorer))
    if (auto added = collector.add(degrees); !added.ok()) return std::move(added).error();
  return std::move(collector).finish();
}

}  // namespace troupe::scheduler
