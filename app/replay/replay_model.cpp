#include "app/replay/replay_model.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/iteration/stated_costs.hpp"
#include "models/family/registry.hpp"
#include "runtime/data/samples/decode_sample.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/cost/layer_work.hpp"
#include "scheduler/cost/roofline.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::app {

namespace {

constexpr std::int64_t kNodesMax = 10'000;
constexpr std::int64_t kDevicesPerNodeMax = 64;
constexpr std::int32_t kWindowFrames = 3000;  // 30 s.

using scheduler::Parallelism;

// The largest picture that the job allows.
MediaShape largest_picture(const VisionInput& vision, std::int64_t pixels_max) {
  if (vision.resize.is_fixed())
    return data::image_shape(vision.square_patches(), vision.square_patches(), vision, 0);
  const std::int64_t side = vision.factor();
  const auto groups = std::max<std::int64_t>(1, pixels_max / (side * side));
  return data::image_shape(vision.merge_size, static_cast<std::int32_t>(groups * vision.merge_size),
                           vision, 0);
}

// The largest sample that the job allows: media, then text.
SampleShape largest_sample(const job::Job& job, const ModelGraph& graph,
                           const std::vector<ModuleConfig>& modules) {
  SampleShape sample;
  sample.llm_tokens = sample.trained_tokens = job.data.max_seq_len;
  TokenCount left = sample.llm_tokens;
  for (std::size_t m = 0; m < graph.modules.size(); ++m) {
    const auto media = models::media_input(modules[m]);
    if (media.medium == Medium::image) {
      sample.media.push_back({ModuleId{m}, {largest_picture(media.vision, job.data.max_pixels)}});
    } else if (media.medium == Medium::audio) {
      sample.media.push_back({ModuleId{m}, {data::audio_shape(kWindowFrames, media.audio, 0)}});
    }
    // One that is longer than the llm takes costs its encoder all the same.
    if (const TokenCount rows = sample.output_rows(ModuleId{m}); rows > 0 && rows <= left) {
      sample.markers.push_back({ModuleId{m}, 0});
      left -= rows;
    }
  }
  return sample;
}

// One module after the other, layer by layer, as templates cut them.
class Chain {
 public:
  Chain(const job::Job& job, const ModelGraph& graph, const std::vector<ModuleConfig>& modules,
        const ReplayMachines& machines, const ReplayModelOptions& options)
      : job_(job), graph_(graph), modules_(modules), machines_(machines), options_(options) {
    works_ = scheduler::model_works(graph, modules);
    for (std::int64_t k = 1; k <= machines.devices_per_node; k *= 2)
      degrees_.push_back(static_cast<std::int32_t>(k));
    sample_ = largest_sample(job, graph, modules);
  }

  /// Layers whose memory holds the activations of `in_flight` microbatches.
  Result<std::vector<scheduler::TemplateLayer>> layers(std::int64_t in_flight) const {
    const auto model = cost_model();
    if (!model.ok()) return model.error();
    std::vector<scheduler::TemplateLayer> made;
    for (std::size_t m = 0; m < graph_.modules.size(); ++m) {
      auto lengths = scheduler::sequence_lengths(graph_, sample_, ModuleId{m});
      const auto once = lengths;
      for (std::int64_t i = 1; i < options_.microbatch_size; ++i)
        lengths.insert(lengths.end(), once.begin(), once.end());
      const double share = scheduler::attention_share(graph_, sample_, ModuleId{m});
      const auto added = add_module(model.value(), ModuleId{m}, lengths, share, in_flight, made);
      if (!added.ok()) return added.error();
    }
    return made;
  }

  std::vector<std::int64_t> layer_bytes() const {
    std::vector<std::int64_t> bytes;
    for (const auto& id : ids()) bytes.push_back(std::llround(state_bytes(id, false)));
    return bytes;
  }

 private:
  Result<scheduler::CostModel> cost_model() const {
    scheduler::RooflineOptions roofline;
    roofline.dtype = job_.train.dtype;
    roofline.compute_share = options_.compute_share;
    std::vector<Parallelism> parallelisms;
    for (const auto degree : degrees_) parallelisms.push_back({degree, 1});
    scheduler::Profile profile;
    profile.device = machines_.device.name + " (computed)";
    for (const auto& id : ids())
      profile.layers.push_back({graph_.at(id.module).layers[std::size_t(id.layer)].name,
                                works_[id.module.index()][std::size_t(id.layer)].kind});
    for (const auto& works : works_)
      for (auto& made :
           scheduler::computed_profiles(works, machines_.device, parallelisms, roofline))
        profile.profiles.push_back(std::move(made));
    return scheduler::CostModel::create(
        graph_, engine::with_stated_costs(graph_, modules_, std::move(profile)));
  }

  Status add_module(const scheduler::CostModel& model, ModuleId module,
                    const std::vector<TokenCount>& lengths, double attention_share,
                    std::int64_t in_flight, std::vector<scheduler::TemplateLayer>& made) const {
    std::vector<std::vector<scheduler::LayerCost>> costs;  // Per degree.
    for (const auto degree : degrees_) {
      auto found = model.module_costs(module, lengths, {degree, 1}, attention_share);
      if (!found.ok()) return found.error();
      for (auto& cost : found.value())
        if (options_.recompute && cost.backward_ms() > 0) cost.input_grad_ms += cost.forward_ms;
      costs.push_back(std::move(found).value());
    }
    TokenCount rows = 0;
    for (const auto length : lengths) rows += length;
    for (std::size_t l = 0; l < costs[0].size(); ++l) {
      const auto& cost = costs[0][l];
      const auto width = double(works_[module.index()][l].width);
      const double kept =
          options_.recompute ? double(rows) * width * scheduler::bytes_per_element(job_.train.dtype)
                             : double(cost.activations.count());
      scheduler::TemplateLayer layer{cost.forward_ms, cost.backward_ms(), {}, {}};
      layer.memory = Bytes{
          std::llround(state_bytes({module, std::int32_t(l)}, true) + kept * double(in_flight))};
      for (std::size_t d = 1; d < degrees_.size(); ++d)
        layer.in_node_sync_ms[degrees_[d]] =
            std::max(0.0, costs[d][l].total_ms() - cost.total_ms() / degrees_[d]);
      made.push_back(std::move(layer));
    }
    return Done{};
  }

  std::vector<LayerId> ids() const {
    std::vector<LayerId> all;
    for (std::size_t m = 0; m < graph_.modules.size(); ++m)
      for (std::size_t l = 0; l < graph_.modules[m].layers.size(); ++l)
        all.push_back({ModuleId{m}, std::int32_t(l)});
    return all;
  }

  double state_bytes(LayerId id, bool with_gradient) const {
    const auto dtype = job_.train.dtype;
    const auto& module = graph_.at(id.module);
    const auto& layer = module.layers[std::size_t(id.layer)];
    double elements = double(layer.parameter_elements);
    for (const auto& tied : graph_.tied)
      if (!tied.layers.empty() && tied.layers.back() == id)
        elements += double(tied.parameter_elements);
    const double element = scheduler::bytes_per_element(dtype);
    // What a device has beside its gradients is without moments in host memory; copies have them.
    const double less = !with_gradient           ? scheduler::gradient_bytes_per_element(dtype)
                        : module.moments_in_host ? scheduler::moment_bytes_per_element(dtype)
                                                 : 0;
    const double each =
        module.freeze ? element : scheduler::state_bytes_per_trained_element(dtype) - less;
    return elements * each + double(layer.constant_elements) * element +
           (with_gradient ? double(layer.held_bytes) : 0);  // Copies have nothing of it.
  }

  const job::Job& job_;
  const ModelGraph& graph_;
  const std::vector<ModuleConfig>& modules_;
  const ReplayMachines& machines_;
  const ReplayModelOptions& options_;
  std::vector<std::vector<LayerWork>> works_;
  std::vector<std::int32_t> degrees_;
  SampleShape sample_;
};

}  // namespace

Result<scheduler::RecoveryModel> recovery_model(const job::Job& job, const ModelGraph& graph,
                                                const std::vector<ModuleConfig>& modules,
                                                const ReplayMachines& machines,
                                                const ReplayModelOptions& options) {
  const auto nodes = machines.nodes;
  if (nodes > kNodesMax || machines.devices_per_node > kDevicesPerNodeMax)
    return Error{Errc::invalid_argument,
                 "a replay takes up to 10,000 nodes of 64 devices, not " + std::to_string(nodes) +
                     " of " + std::to_string(machines.devices_per_node),
                 "--cluster", "replay a part of it"};
  const Chain chain(job, graph, modules, machines, options);
  scheduler::TemplateRequest request;
  request.node_count = nodes;
  request.gpus_per_node = machines.devices_per_node;
  request.fault_tolerance = job.cluster.fault_tolerance;
  request.device_memory = machines.device.memory;
  auto set = scheduler::make_templates_in_flight(
      request, [&](std::int64_t in_flight) { return chain.layers(in_flight); });
  if (!set.ok()) {
    Error error = set.error();
    if (error.where == "nodes") error.where = "--cluster";
    return error;
  }
  scheduler::RecoveryModel model;
  model.templates = std::move(set).value();
  model.layer_bytes = chain.layer_bytes();
  model.fault_tolerance = job.cluster.fault_tolerance;
  model.global_batch = job.train.global_batch_size;
  model.microbatch_size = options.microbatch_size;
  return model;
}

}  // namespace troupe::app
