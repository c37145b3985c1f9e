#include "scheduler/layout_candidates.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "scheduler/layout_degrees.hpp"
#include "scheduler/layout_request.hpp"
#include "scheduler/layout_sizes.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Error none(std::string message, std::string where, std::string fix) {
  return {Errc::infeasible, std::move(message), std::move(where), std::move(fix)};
}

/// What the fullest device holds: its state, and of each stage as many microbatches as there are
/// stages from it to the end, `most` at most.
double fullest_bytes(const PipelineShape& shape, const LayerWeights& weights, double most) {
  std::vector<double> bytes(at(shape.devices));
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s) {
      const bool last = &track == &shape.tracks.back();
      const std::int32_t depth = track.segments() - s + (last ? 0 : shape.tracks.back().segments());
      const double in_flight = std::min<double>(most, depth);
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const auto layer = track.layers[at(l)];
        bytes[at(track.first_device + s)] +=
            weights.state_bytes[layer] + in_flight * weights.activation_bytes[layer];
      }
    }
  return *std::max_element(bytes.begin(), bytes.end());
}

/// Work of the longest path through a pipeline, for one microbatch.
double path_ms(const ModelGraph& model, const PipelineShape& shape, const LayerWeights& weights) {
  double encoders = 0, llm = 0;
  for (const Track& track : shape.tracks) {
    double encoder_part = 0;
    for (const auto layer : track.layers)
      (weights.layers[layer].module == model.llm() ? llm : encoder_part) += weights.work_ms[layer];
    encoders = shape.form == PipelineForm::side_by_side ? std::max(encoders, encoder_part)
                                                        : encoders + encoder_part;
  }
  return encoders + llm;
}

/// Milliseconds that a byte of a device's state takes in the reduction of its gradients.
double reduction_rate(const AutoLayoutRequest& request, std::int32_t pipelines) {
  const auto& speeds = request.prediction.speeds;
  const auto per_byte = [](double gigabytes_per_s) {
    return gigabytes_per_s > 0 ? 1 / (gigabytes_per_s * 1e6) : 0;
  };
  return bytes_per_element(request.prediction.dtype) /
         state_bytes_per_trained_element(request.prediction.dtype) * (pipelines - 1) *
         (per_byte(speeds.reduce_gigabytes_per_s) + per_byte(speeds.network.gigabytes_per_s));
}

/// Gradients of the fullest device: the first pipeline takes those of all others, adds them and
/// returns the sums.
double reduction_ms(const AutoLayoutRequest& request, const PipelineShape& shape,
                    const LayerWeights& weights, std::int32_t pipelines) {
  if (pipelines == 1) return 0;
  std::vector<double> bytes(at(shape.devices));
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s)
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const auto layer = track.layers[at(l)];
        if (!request.model->graph().at(weights.layers[layer].module).freeze)
          bytes[at(track.first_device + s)] += weights.state_bytes[layer];
      }
  return *std::max_element(bytes.begin(), bytes.end()) * reduction_rate(request, pipelines);
}

/// Least time that rows and their gradients travel from device to device of a pipeline.
double latency_ms(const AutoLayoutRequest& request, const PipelineShape& shape) {
  const auto& speeds = request.prediction.speeds;
  const bool one_node = shape.devices <= request.cluster.devices_per_node;
  return 2 * (shape.devices - 1) * (one_node ? speeds.node : speeds.network).latency_ms;
}

/// Microbatches of a pipeline and step.
double microbatches_of(const AutoLayoutRequest& request, std::int32_t pipelines) {
  const auto own = std::max<std::int64_t>(request.global_batch / pipelines, 1);
  return static_cast<double>(std::min(request.microbatches, own));
}

/// Longest path, slowest device for all other microbatches, reduction.
double estimated_ms(const AutoLayoutRequest& request, const PipelineShape& shape,
                    const LayerWeights& weights, std::int32_t pipelines) {
  return path_ms(request.model->graph(), shape, weights) + latency_ms(request, shape) +
         (microbatches_of(request, pipelines) - 1) * shape.slowest_ms +
         reduction_ms(request, shape, weights, pipelines);
}

/// Collects candidates, and remembers why others were dropped.
class Collector {
 public:
  Collector(const AutoLayoutRequest& request, const LayoutScorer& scorer, std::size_t per_choice,
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
      auto weights = scorer_.weights(pipelines, parallelisms);
      if (!weights.ok()) return std::move(weights).error();
      const auto shared = std::make_shared<const LayerWeights>(std::move(weights).value());
      weigh_layers(*shared);
      shapes_seen_ = shapes_seen_ || shares.front() <= sizes.most();
      if (!hopeless(shares.back(), widths, *shared, pipelines))
        add_sized(parallelisms, widths, shares, shared);
      for (const auto size : sizes.smaller(shares.back()))
        if (!hopeless(size, widths, *shared, pipelines))
          add_sized(parallelisms, widths, std::vector(shares.size(), size), shared);
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
  void weigh_layers(const LayerWeights& weights) {
    double largest = 0;
    LayerId layer;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      const double bytes = weights.state_bytes[i] + weights.activation_bytes[i];
      if (bytes > largest) largest = bytes, layer = weights.layers[i];
    }
    if (layer_.module.valid() && largest >= layer_bytes_) return;
    layer_bytes_ = largest;
    layer_ = layer;
  }

  /// No shape on so many devices can come near the best estimate so far.
  bool hopeless(std::int32_t size, StageWidths widths, const LayerWeights& weights,
                std::int32_t pipelines) const {
    const ModelGraph& model = request_.model->graph();
    double sum = 0, largest = 0, llm = 0, trained = 0;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      const ModuleId module = weights.layers[i].module;
      sum += weights.work_ms[i];
      largest = std::max(largest, weights.work_ms[i]);
      if (module == model.llm()) llm += weights.work_ms[i];
      if (!model.at(module).freeze) trained += weights.state_bytes[i];
    }
    const std::int32_t groups = size / std::min(widths.encoder, widths.llm);
    const double slowest = std::max(largest, sum / groups);
    return llm + (microbatches_of(request_, pipelines) - 1) * slowest +
               trained / groups * reduction_rate(request_, pipelines) >
           worth_ * best_ms_;
  }

  /// No shape on so many devices has a device that holds less than the mean, or than a layer.
  bool too_small(std::int32_t size, StageWidths widths, const LayerWeights& weights) {
    double sum = 0, largest = 0;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      const double bytes = weights.state_bytes[i] + weights.activation_bytes[i];
      sum += bytes;
      largest = std::max(largest, bytes);
    }
    const std::int32_t groups = size / std::min(widths.encoder, widths.llm);
    const double least = std::max(largest, sum / groups);
    if (request_.device_memory.count() == 0 ||
        least <= static_cast<double>(request_.device_memory.count()))
      return false;
    least_bytes_ = std::min(least_bytes_, least);
    return true;
  }

  std::vector<PipelineShape> usable_shapes(std::int32_t size, StageWidths widths,
                                           const LayerWeights& weights) {
    if (!pinned_stages_ && too_small(size, widths, weights)) return {};
    // A pin may ask for any number of stages.
    const double worth = pinned_stages_ ? std::numeric_limits<double>::infinity() : worth_;
    auto shapes = pipeline_shapes(request_.model->graph(), weights, size, widths, worth);
    std::erase_if(shapes, [&](const auto& s) { return !keeps_pins(request_, s, weights); });
    pins_kept_ = pins_kept_ || !shapes.empty();
    if (request_.device_memory.count() > 0)
      std::erase_if(shapes, [&](const auto& shape) {
        const double bytes = fullest_bytes(shape, weights, 1);
        least_bytes_ = std::min(least_bytes_, bytes);
        return bytes > static_cast<double>(request_.device_memory.count());
      });
    return shapes;
  }

  void add_sized(const std::vector<Parallelism>& parallelisms, StageWidths widths,
                 const std::vector<std::int32_t>& sizes,
                 const std::shared_ptr<const LayerWeights>& weights) {
    const auto larger = usable_shapes(sizes.front(), widths, *weights);
    const bool mixed = sizes.back() != sizes.front();
    const auto smaller = mixed ? usable_shapes(sizes.back(), widths, *weights) : larger;
    if (larger.empty() || smaller.empty()) return;
    fits_ = true;
    std::vector<std::pair<double, std::size_t>> estimates;
    std::vector<const PipelineShape*> alike(smaller.size(), nullptr);
    for (std::size_t i = 0; i < smaller.size(); ++i) {
      if (mixed) {
        const auto same = std::find_if(larger.begin(), larger.end(),
                                       [&](const auto& s) { return s.form == smaller[i].form; });
        alike[i] = same == larger.end() ? &larger.front() : &*same;
      }
      const auto pipelines = static_cast<std::int32_t>(sizes.size());
      double ms = estimated_ms(request_, smaller[i], *weights, pipelines);
      if (alike[i]) ms = std::max(ms, estimated_ms(request_, *alike[i], *weights, pipelines));
      estimates.emplace_back(ms, i);
    }
    std::stable_sort(estimates.begin(), estimates.end());
    best_ms_ = std::min(best_ms_, estimates.front().first);
    // The best, and the best of each form, so that forms can be compared.
    std::set<PipelineForm> forms;
    std::size_t seen = 0;
    for (const auto& [ms, i] : estimates) {
      if (!forms.insert(smaller[i].form).second && seen >= per_choice_) continue;
      ++seen;
      LayoutCandidate candidate{parallelisms, {smaller[i]}, {}, weights, ms};
      if (mixed) candidate.shapes.push_back(*alike[i]);
      const auto pipelines = static_cast<std::int32_t>(sizes.size());
      candidate.may_fit =
          request_.device_memory.count() == 0 ||
          fullest_bytes(smaller[i], *weights, microbatches_of(request_, pipelines)) <=
              static_cast<double>(request_.device_memory.count());
      for (const auto size : sizes) candidate.shape_of.push_back(size == sizes.back() ? 0 : 1);
      add_placed(std::move(candidate), widths);
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
    const double memory = static_cast<double>(request_.device_memory.count());
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
    if (layer_bytes_ > memory)
      return none(
          "layer " + model.at(layer_.module).layers[at(layer_.layer)].name + " alone needs " +
              byte_text(layer_bytes_) + " with one microbatch, a device has " + byte_text(memory),
          "memory",
          "nearest choice: devices of " + byte_text(layer_bytes_) + ", or more train.microbatches");
    return none("no layout fits: the fullest device needs at least " + byte_text(least_bytes_) +
                    " and has " + byte_text(memory),
                "memory",
                "nearest choice: devices of " + byte_text(least_bytes_) +
                    ", more devices, or more train.microbatches");
  }

  static std::size_t most_layers(const ModelGraph& model) {
    std::size_t count = 0;
    for (const auto& module : model.modules) count += module.layers.size();
    return count;
  }

  /// The pipelines that pins or failures to be survived ask for find no devices.
  Error room_error() const {
    const auto& cluster = request_.cluster;
    const bool whole_nodes = request_.fault_tolerance > 0;
    const std::int32_t dp = pinned_pipelines(request_);
    const std::int32_t pipelines = std::max(dp, request_.fault_tolerance + 1);
    const std::int32_t nodes = (least_devices_ - 1) / cluster.devices_per_node + 1;
    const auto text = [](Parallelism p) {
      return "tp " + to_string(p.tp) + " cp " + to_string(p.cp);
    };
    const auto& [encoders, llm] = least_degrees_;
    const std::int32_t devices =
        pipelines * (whole_nodes ? nodes * cluster.devices_per_node : least_devices_);
    const std::int32_t possible =
        whole_nodes ? cluster.nodes / nodes : cluster.devices() / least_devices_;
    return none((pipelines == 1 ? "a pipeline takes " : to_string(pipelines) + " pipelines take ") +
                    "at least " + to_string(devices) + " devices" +
                    (whole_nodes ? " of whole nodes" : "") + ", there are " +
                    to_string(cluster.devices()) + ": stages of encoders have " + text(encoders) +
                    ", those of the llm " + text(llm),
                "cluster",
                possible > request_.fault_tolerance && possible < dp
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
    const LayoutScorer scorer(free);
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
  const LayoutScorer& scorer_;
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
    return !pp || stages_of(shape, weights, model.find(entry.first)) == *pp;
  });
}

Result<std::vector<LayoutCandidate>> layout_candidates(const AutoLayoutRequest& request,
                                                       const LayoutScorer& scorer,
                                                       std::size_t per_choice, double worth) {
  Collector collector(request, scorer, per_choice, worth);
  for (const auto& degrees : degree_choices(request))
    if (auto added = collector.add(degrees); !added.ok()) return std::move(added).error();
  return std::move(collector).finish();
}

}  // namespace troupe::scheduler
