#include "scheduler/layout_candidates.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "scheduler/layout_request.hpp"

namespace troupe::scheduler {

namespace {

using std::to_string;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Error none(std::string message, std::string where, std::string fix) {
  return {Errc::infeasible, std::move(message), std::move(where), std::move(fix)};
}

std::int32_t pinned_dp(const AutoLayoutRequest& request) {
  for (const auto& [name, pins] : request.pins)
    if (pins.dp) return *pins.dp;
  return 0;
}

/// Numbers of pipelines worth a look: all of a few, else those that divide the groups or nodes.
std::vector<std::int32_t> pipeline_counts(const AutoLayoutRequest& request, std::int32_t groups) {
  constexpr std::int32_t kAllBelow = 16;
  const std::int32_t units = request.fault_tolerance > 0 ? request.cluster.nodes : groups;
  const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(units, request.global_batch));
  std::vector<std::int32_t> counts;
  if (const auto dp = pinned_dp(request); dp > 0) {
    if (dp <= most) counts.push_back(dp);
    return counts;
  }
  for (std::int32_t dp = request.fault_tolerance + 1; dp <= most; ++dp)
    if (dp <= kAllBelow || groups % dp == 0 || request.cluster.nodes % dp == 0)
      counts.push_back(dp);
  return counts;
}

/// Devices of each pipeline, larger ones first: whole groups, and whole nodes where failures are to
/// be survived.
std::vector<std::int32_t> pipeline_devices(const AutoLayoutRequest& request, std::int32_t unit,
                                           std::int32_t pipelines) {
  if (request.fault_tolerance > 0) unit = request.cluster.devices_per_node;
  const std::int32_t units = request.cluster.devices() / unit;
  std::vector<std::int32_t> sizes;
  for (std::int32_t p = 0; p < pipelines; ++p)
    sizes.push_back(unit * (units / pipelines + (p < units % pipelines ? 1 : 0)));
  return sizes;
}

/// What the fullest device holds at the least: its state and one microbatch.
double least_memory(const PipelineShape& shape, const LayerWeights& weights) {
  std::vector<double> bytes(at(shape.devices));
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s)
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const auto layer = track.layers[at(l)];
        bytes[at(track.first_device + s)] +=
            weights.state_bytes[layer] + weights.activation_bytes[layer];
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

/// Gradients of the fullest device: the first pipeline takes those of all others, adds them and
/// returns the sums.
double reduction_ms(const AutoLayoutRequest& request, const LayoutCandidate& candidate) {
  const auto& speeds = request.prediction.speeds;
  const auto per_byte = [](double gigabytes_per_s) {
    return gigabytes_per_s > 0 ? 1 / (gigabytes_per_s * 1e6) : 0;
  };
  const double share = bytes_per_element(request.prediction.dtype) /
                       state_bytes_per_trained_element(request.prediction.dtype);
  const PipelineShape& shape = candidate.shapes.front();
  std::vector<double> bytes(at(shape.devices));
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s)
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const auto layer = track.layers[at(l)];
        if (!request.model->graph().at(candidate.weights->layers[layer].module).freeze)
          bytes[at(track.first_device + s)] += share * candidate.weights->state_bytes[layer];
      }
  return *std::max_element(bytes.begin(), bytes.end()) * (candidate.pipelines() - 1) *
         (per_byte(speeds.reduce_gigabytes_per_s) + per_byte(speeds.network.gigabytes_per_s));
}

/// Least time that rows and their gradients travel from device to device of a pipeline.
double latency_ms(const AutoLayoutRequest& request, const PipelineShape& shape) {
  const auto& speeds = request.prediction.speeds;
  const bool one_node = shape.devices <= request.cluster.devices_per_node;
  return 2 * (shape.devices - 1) * (one_node ? speeds.node : speeds.network).latency_ms;
}

/// Collects candidates, and remembers why others were dropped.
class Collector {
 public:
  Collector(const AutoLayoutRequest& request, const LayoutScorer& scorer, std::size_t per_choice)
      : request_(request), scorer_(scorer), per_choice_(per_choice) {}

  Status add(const std::vector<Parallelism>& parallelisms) {
    const ModelGraph& model = request_.model->graph();
    const auto width = [](Parallelism p) { return p.tp * p.cp; };
    const StageWidths widths{width(parallelisms.front()), width(parallelisms[model.llm().index()])};
    const std::int32_t unit = std::max(widths.encoder, widths.llm);
    for (const auto pipelines : pipeline_counts(request_, request_.cluster.devices() / unit)) {
      auto weights = scorer_.weights(pipelines, parallelisms);
      if (!weights.ok()) return std::move(weights).error();
      const auto shared = std::make_shared<const LayerWeights>(std::move(weights).value());
      weigh_layers(*shared);
      auto sizes = pipeline_devices(request_, unit, pipelines);
      const auto most = static_cast<std::int32_t>(shared->layers.size()) * unit;
      most_devices_ = std::max(most_devices_, std::int64_t{most} * pipelines);
      if (request_.planned_only)
        for (auto& size : sizes) size = std::min(size, most);  // Other devices stay idle.
      shapes_seen_ = shapes_seen_ || sizes.front() <= most;
      add_sized(parallelisms, widths, sizes, shared);
      for (const auto size : smaller_sizes(sizes.back(), unit))
        add_sized(parallelisms, widths, std::vector(sizes.size(), size), shared);
    }
    return Done{};
  }

  Result<std::vector<LayoutCandidate>> finish() && {
    if (candidates_.empty()) return reason();
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const auto& a, const auto& b) { return a.estimate_ms < b.estimate_ms; });
    return std::move(candidates_);
  }

 private:
  /// Devices of a pipeline that leaves some of its share idle: every number of groups where they
  /// are few, then powers of two.
  std::vector<std::int32_t> smaller_sizes(std::int32_t share, std::int32_t unit) const {
    constexpr std::int32_t kAllBelow = 8;
    std::vector<std::int32_t> sizes;
    // Pipelines on whole nodes take all of their devices.
    if (!request_.planned_only || request_.fault_tolerance > 0) return sizes;
    for (std::int32_t groups = 1; groups * unit < share; groups += groups < kAllBelow ? 1 : groups)
      sizes.push_back(groups * unit);
    return sizes;
  }

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

  std::vector<PipelineShape> usable_shapes(std::int32_t size, StageWidths widths,
                                           const LayerWeights& weights) {
    auto shapes = pipeline_shapes(request_.model->graph(), weights, size, widths);
    std::erase_if(shapes, [&](const auto& s) { return !keeps_pins(request_, s, weights); });
    pins_kept_ = pins_kept_ || !shapes.empty();
    if (request_.device_memory.count() > 0)
      std::erase_if(shapes, [&](const auto& shape) {
        const double bytes = least_memory(shape, weights);
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
    std::vector<LayoutCandidate> made;
    for (const auto& shape : smaller) {
      LayoutCandidate candidate{parallelisms, {shape}, {}, weights, 0};
      if (mixed) {
        const auto alike = std::find_if(larger.begin(), larger.end(),
                                        [&](const auto& s) { return s.form == shape.form; });
        candidate.shapes.push_back(alike == larger.end() ? larger.front() : *alike);
      }
      for (const auto size : sizes) candidate.shape_of.push_back(size == sizes.back() ? 0 : 1);
      estimate(request_, candidate);
      made.push_back(std::move(candidate));
    }
    std::stable_sort(made.begin(), made.end(),
                     [](const auto& a, const auto& b) { return a.estimate_ms < b.estimate_ms; });
    keep(std::move(made));
  }

  /// The best, and the best of each form, so that forms can be compared.
  void keep(std::vector<LayoutCandidate> made) {
    std::set<PipelineForm> forms;
    for (std::size_t i = 0; i < made.size(); ++i)
      if (forms.insert(made[i].shapes.front().form).second || i < per_choice_)
        candidates_.push_back(std::move(made[i]));
  }

  Error reason() const {
    const auto& cluster = request_.cluster;
    const double memory = static_cast<double>(request_.device_memory.count());
    const ModelGraph& model = request_.model->graph();
    if (!shapes_seen_)
      return none(to_string(cluster.devices()) + " devices are more than the job can use: " +
                      to_string(request_.global_batch) + " samples per step and " +
                      to_string(most_layers(model)) + " layers allow " + to_string(most_devices_),
                  "cluster",
                  "nearest choice: " + to_string(most_devices_) +
                      " devices, or a larger train.global_batch_size");
    if (!pins_kept_) return pins_error();
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

  /// The stages that the best layout without pipeline pins has.
  std::string nearest_pins() const {
    AutoLayoutRequest free = request_;
    for (auto& [name, pins] : free.pins) pins.pp.reset();
    const LayoutScorer scorer(free);
    const auto candidates = layout_candidates(free, scorer, 1);
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
  std::vector<LayoutCandidate> candidates_;
  bool shapes_seen_ = false, pins_kept_ = false;
  double least_bytes_ = std::numeric_limits<double>::infinity();
  double layer_bytes_ = 0;
  LayerId layer_;
  std::int64_t most_devices_ = 0;
};

/// Gives out groups of consecutive devices of a node: the widest first, so that powers of two leave
/// no holes.
Result<std::vector<DeviceGroup>> allocate(const ClusterShape& cluster,
                                          const std::vector<std::int32_t>& widths) {
  std::vector<std::size_t> order(widths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return widths[a] > widths[b]; });
  std::vector<std::int32_t> used(at(cluster.nodes));
  std::vector<DeviceGroup> groups(widths.size());
  std::int32_t node = 0, width = 0;
  for (const auto i : order) {
    if (widths[i] != width) node = 0, width = widths[i];
    while (node < cluster.nodes && used[at(node)] + width > cluster.devices_per_node) ++node;
    if (node == cluster.nodes)
      return none("groups of " + to_string(width) + " devices do not fit into nodes of " +
                      to_string(cluster.devices_per_node),
                  "cluster", "choose degrees that divide the devices of a node");
    groups[i] = {NodeId{node}, used[at(node)], width};
    used[at(node)] += width;
  }
  return groups;
}

}  // namespace

bool keeps_pins(const AutoLayoutRequest& request, const PipelineShape& shape,
                const LayerWeights& weights) {
  const ModelGraph& model = request.model->graph();
  return std::all_of(request.pins.begin(), request.pins.end(), [&](const auto& entry) {
    const auto& pp = entry.second.pp;
    return !pp || stages_of(shape, weights, model.find(entry.first)) == *pp;
  });
}

void estimate(const AutoLayoutRequest& request, LayoutCandidate& candidate) {
  candidate.estimate_ms = 0;
  const double reduce_ms = reduction_ms(request, candidate);
  const auto own = std::max<std::int64_t>(request.global_batch / candidate.pipelines(), 1);
  const auto microbatches = static_cast<double>(std::min(request.microbatches, own));
  for (const auto& shape : candidate.shapes)
    candidate.estimate_ms =
        std::max(candidate.estimate_ms, path_ms(request.model->graph(), shape, *candidate.weights) +
                                            latency_ms(request, shape) +
                                            (microbatches - 1) * shape.slowest_ms + reduce_ms);
}

Result<std::vector<LayoutCandidate>> layout_candidates(const AutoLayoutRequest& request,
                                                       const LayoutScorer& scorer,
                                                       std::size_t per_choice) {
  Collector collector(request, scorer, per_choice);
  for (const auto& degrees : degree_choices(request))
    if (auto added = collector.add(degrees); !added.ok()) return std::move(added).error();
  return std::move(collector).finish();
}

Result<PlacedCandidate> place(const AutoLayoutRequest& request, const LayoutCandidate& candidate) {
  const ModelGraph& model = request.model->graph();
  HandLayout on_groups;
  std::vector<std::int32_t> widths;
  for (const auto index : candidate.shape_of) {
    const PipelineShape& shape = candidate.shapes[index];
    const auto first = static_cast<std::int32_t>(widths.size());
    on_groups.pipelines.push_back(hand_stages(model, *candidate.weights, shape, first));
    widths.resize(widths.size() + at(shape.devices), 1);
    for (const auto& stage : on_groups.pipelines.back()) {
      const auto degrees = candidate.parallelisms[model.find(stage.runs.front().module).index()];
      widths[at(stage.node)] = degrees.tp * degrees.cp;
    }
  }
  auto groups = allocate(request.cluster, widths);
  if (!groups.ok()) return std::move(groups).error();
  auto plan = place_by_hand(model, on_groups, {static_cast<std::int32_t>(widths.size()), 1});
  if (!plan.ok()) return std::move(plan).error();
  PlacedCandidate placed{std::move(on_groups), std::move(plan).value(), std::move(groups).value()};
  for (std::size_t g = 0; g < placed.groups.size(); ++g)
    placed.plan.devices[g] = {placed.groups[g].node, placed.groups[g].first};
  for (auto& pipeline : placed.layout.pipelines)
    for (auto& stage : pipeline) {
      const DeviceGroup& group = placed.groups[at(stage.node)];
      stage.node = group.node.value;
      stage.device = group.first;
    }
  return placed;
}

}  // namespace troupe::scheduler
