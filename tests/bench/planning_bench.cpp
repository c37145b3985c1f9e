// Processor time of the planners at the sizes that were promised, and how it grows.

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "scheduler/iteration/distribute.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout.hpp"
#include "scheduler/layout/module_partition.hpp"
#include "scheduler/layout/partition.hpp"
#include "scheduler/recovery/instantiate.hpp"
#include "scheduler/recovery/next_layout.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/recovery/relayout.hpp"
#include "scheduler/recovery/wait_choice.hpp"
#include "scheduler/state/copy_plan.hpp"
#include "scheduler/state/state_moves.hpp"
#include "tests/bench/batch_on_layouts.hpp"
#include "tests/bench/measure.hpp"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

bool all_planned = true;

// A planner that failed would be measured as a fast one.
template <class Plan>
double planning_ms(Plan plan, int repeats = 5) {
  bool ok = true;
  const double ms = bench::cpu_ms([&] { ok = ok && plan().ok(); }, repeats);
  all_planned = all_planned && ok;
  return ok ? ms : HUGE_VAL;
}

// Blocks that differ a little, a cheap first layer and an expensive head, tensor parallelism over
// 2, 4 and 8 GPUs or over every count.
TemplateRequest templates(int layers, int nodes, bool every_count) {
  std::mt19937 random(7);
  TemplateRequest request;
  for (int i = 0; i < layers; ++i) {
    const double base = i == 0 ? 0.2 : i + 1 == layers ? 3 : 1 + 1e-4 * (random() % 1000);
    TemplateLayer layer{base, 2 * base, Bytes{100}, {}};
    for (int k = 2; k <= 8; ++k)
      if (every_count || k == 2 || k == 4 || k == 8) layer.in_node_sync_ms[k] = 0.05 * k;
    request.layers.push_back(layer);
  }
  request.node_count = nodes;
  request.gpus_per_node = 8;
  request.device_memory = Bytes{100'000};
  return request;
}

void measure_templates() {
  for (const bool every : {true, false})
    for (const int nodes : {8, 24, 64})
      for (const int layers : {24, 48, 96, 192}) {
        const auto request = templates(layers, nodes, every);
        const bool promised = layers == 96 && nodes == 24;
        const std::string size = std::to_string(layers) + " layers, " + std::to_string(nodes) +
                                 " nodes x 8 GPUs, " + (every ? "k = 1..8" : "k = 1, 2, 4, 8");
        bench::print("all pipeline templates",
                     planning_ms([&] { return make_templates(request); }, 3), "ms",
                     promised ? std::optional<double>(300) : std::nullopt, size);
      }
}

void measure_instantiation() {
  for (const std::int64_t nodes : {50, 100, 200, 500, 1000}) {
    InstantiateRequest request;
    for (std::int64_t size = 2; size <= 60; ++size)
      request.templates.push_back({size, 100 / std::pow(static_cast<double>(size), 0.9)});
    request.node_count = nodes;
    request.fault_tolerance = 1;
    request.global_batch = 4096;
    bench::print("instantiate, sizes 2..60", planning_ms([&] { return instantiate(request); }),
                 "ms", nodes == 500 ? std::optional<double>(1000) : std::nullopt,
                 std::to_string(nodes) + " nodes");
  }
}

void measure_distribution() {
  for (const std::size_t pipelines : {10, 100, 1000}) {
    std::mt19937 random(3);
    std::vector<double> ms;
    for (std::size_t i = 0; i < pipelines; ++i) ms.push_back(1 + 1e-9 * random());
    bench::print("distribute (eq. 2.6)", planning_ms([&] { return distribute(ms, 1'000'000, 1); }),
                 "ms", std::nullopt, std::to_string(pipelines) + " unequal pipelines");
  }
}

void measure_partition() {
  for (const std::size_t layers : {1'000, 100'000, 1'000'000}) {
    std::mt19937 random(5);
    std::vector<double> costs;
    for (std::size_t i = 0; i < layers; ++i) costs.push_back(1e-9 * random());
    bench::print("partition into 100 stages", planning_ms([&] { return partition(costs, 100); }, 3),
                 "ms", std::nullopt, std::to_string(layers) + " layers");
  }
}

void measure_module_partition() {
  const auto layers = [](std::size_t count) { return std::vector<PlannedLayer>(count, {1, 1, 1}); };
  const std::vector<PlannedModule> modules{{"vision", true, {"vp"}, {}, layers(32)},
                                           {"vp", false, {"llm"}, "llm", layers(1)},
                                           {"audio", true, {"ap"}, {}, layers(24)},
                                           {"ap", false, {"llm"}, "llm", layers(1)},
                                           {"llm", false, {}, {}, layers(80)}};
  for (const int devices : {8, 64})
    bench::print("partition of modules",
                 planning_ms([&] { return partition_modules(modules, devices, 64); }), "ms",
                 std::nullopt, "5 modules, " + std::to_string(devices) + " devices");
}

// Two encoders and an llm of very different sizes, uneven samples of which not all have both
// media; every power of two of tp and cp inside a node.
LayoutInput layout_input(int devices, LayoutObjective objective) {
  std::mt19937 random(13);
  const auto uniform = [&](double from, double to) {
    return from + (to - from) * 1e-9 * static_cast<double>(random() % 1'000'000'000);
  };
  LayoutInput input;
  const std::vector<std::int32_t> degrees{1, 2, 4, 8};
  input.modules = {{"vision", {2}, false, 32, 10e9, degrees, {1}, {}},
                   {"audio", {2}, false, 24, 5e9, degrees, {1}, {}},
                   {"llm", {}, false, 80, 1.1e12, degrees, degrees, {}}};
  for (int s = 0; s < 512; ++s) {
    const double vision = uniform(0, 1) < 0.8 ? uniform(5, 200) : 0;
    const double audio = uniform(0, 1) < 0.4 ? uniform(2, 60) : 0;
    const double llm = uniform(100, 900);
    input.samples.push_back({{vision, 2 * vision, 1e7 * vision, 1e5 * vision},
                             {audio, 2 * audio, 1e7 * audio, 1e5 * audio},
                             {llm, 2 * llm, 1e7 * llm, 0}});
  }
  input.devices = devices;
  input.devices_per_node = 8;
  input.device_memory_bytes = 80e9;
  input.global_batch = 2048;
  input.microbatch_sizes = {1, 2, 4, 8, 16};
  input.node_gigabytes_per_s = 400;
  input.network_gigabytes_per_s = 50;
  input.objective = objective;
  input.seed = 1;
  return input;
}

void measure_layouts() {
  for (const auto objective : {LayoutObjective::entrain, LayoutObjective::dflop})
    for (const int devices : {64, 256, 1024}) {
      const auto input = layout_input(devices, objective);
      const std::string name = objective == LayoutObjective::dflop ? "DFLOP's" : "Entrain's";
      bench::print("layout search, " + name + " objective",
                   planning_ms([&] { return search_layout(input); }, 3), "ms",
                   devices == 1024 ? std::optional<double>(200) : std::nullopt,
                   "3 modules, " + std::to_string(devices) + " GPUs");
    }
}

// A layer's cost grows with its tokens, and with their square where it attends.
LayerProfile layer_kind(const std::string& name, Parallelism p, double ms_per_1k, bool attends) {
  LayerProfile made{name, p, CostOrigin::computed, Bytes{100'000'000}, {}};
  const double split = std::pow(p.tp * p.cp, 0.85);  // Collectives take their share.
  for (const TokenCount tokens : {64, 512, 4096, 32768}) {
    const double k = static_cast<double>(tokens) / 1024, ms = (0.02 + ms_per_1k * k) / split;
    const double square = attends ? 0.02 * ms_per_1k * k * k / split : 0;
    made.points.push_back({tokens,
                           {ms, ms, ms, 5e7 * k / (p.tp * p.cp)},
                           {square, 2 * square, 0, attends ? 1e6 * k : 0}});
  }
  return made;
}

// An encoder of 32 blocks, a projector and an llm of 80, on nodes of eight devices.
CostModel layout_model() {
  ModelGraph graph;
  Profile profile;
  const auto add = [&](const char* name, ModuleKind kind, int blocks, std::int64_t elements,
                       std::vector<ModuleId> next, double ms_per_1k) {
    std::vector<LayerSpec> layers;
    for (int i = 0; i < blocks; ++i) {
      layers.push_back({std::string(name) + "." + std::to_string(i), elements});
      profile.layers.push_back({layers.back().name, name});
    }
    for (const Parallelism p : {Parallelism{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {2, 2}, {4, 2}})
      profile.profiles.push_back(layer_kind(name, p, ms_per_1k, blocks > 1));
    const std::int64_t width = kind == ModuleKind::llm ? 8192 : 1280;
    graph.modules.push_back({name, kind, false, std::move(next), std::move(layers), width, width});
  };
  add("vision", ModuleKind::encoder, 32, 20'000'000, {ModuleId{1}}, 0.4);
  add("projector", ModuleKind::projector, 1, 40'000'000, {ModuleId{2}}, 0.5);
  add("llm", ModuleKind::llm, 80, 850'000'000, {}, 6);
  return CostModel::create(graph, profile).value();
}

void measure_auto_layout(const AutoLayoutRequest& request, const std::string& what,
                         const std::string& step, const std::string& size) {
  const auto chosen = auto_layout(request);
  bench::print(what, planning_ms([&] { return auto_layout(request); }, 3), "ms", 200, size);
  bench::print(step, chosen.ok() ? chosen.value().predicted.step_ms : HUGE_VAL, "ms", std::nullopt,
               size);
  if (chosen.ok() && chosen.value().one_number_ms)
    bench::print(step + ", with one number of replicas for all", *chosen.value().one_number_ms,
                 "ms", std::nullopt, size);
}

// What `troupe plan` asks for: every number of pipelines, form and degree, scored by simulation.
void measure_auto_layouts() {
  const CostModel model = layout_model();
  std::mt19937 random(17);
  AutoLayoutRequest request;
  request.model = &model;
  for (int s = 0; s < 512; ++s) {
    SampleShape shape;
    shape.position = s;
    const auto rows = static_cast<std::int32_t>(64 + random() % 512);
    shape.media.push_back({ModuleId{0}, {{4 * rows, 4 * rows, rows, 2, 2 * rows}}});
    shape.llm_tokens = rows + 128 + random() % 512;
    shape.trained_tokens = 128;
    request.samples.push_back(std::move(shape));
  }
  request.device_memory = Bytes{80'000'000'000};
  request.microbatches = 16;
  request.prediction.dtype = Dtype::bf16;
  request.prediction.speeds.node = {0.01, 270};
  request.prediction.speeds.network = {0.02, 15};
  request.prediction.speeds.reduce_gigabytes_per_s = 1000;
  request.planned_only = true;
  for (const int devices : {64, 256, 1024}) {
    request.cluster = {devices / 8, 8};
    request.global_batch = 2 * devices;
    const std::string size = "113 layers, " + std::to_string(devices) + " GPUs";
    measure_auto_layout(request, "automatic layout", "its predicted step", size);
    // Pins of equal numbers leave pipelines alone to be looked at.
    request.pins = {{"vision", {{}, {}, {}, devices / 32}}, {"llm", {{}, {}, {}, devices / 32}}};
    measure_auto_layout(request, "automatic layout of pinned pipelines", "its predicted step",
                        size);
    request.pins.clear();
    // Encoders may stand on the llm's devices, too.
    request.schedule = "three-phase";
    measure_auto_layout(request, "automatic layout in phases", "its predicted step", size);
    request.schedule = Schedule();
  }
}

void measure_copies() {
  for (const int ranks : {24, 96}) {
    std::mt19937 random(11);
    std::vector<CopyItem> items;
    for (int i = 0; i < 96; ++i) {
      CopyItem item{std::to_string(i), i == 0 || i == 95 ? 5'000'000 : 1'000'000, {}, {}};
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        if (random() % 8 == 0) (random() % 3 ? item.holders : item.needs).push_back(rank);
      if (item.holders.empty()) item.holders.push_back(0);
      items.push_back(item);
    }
    const auto plan = plan_copies(items);
    const std::string size = "96 layers, " + std::to_string(ranks) + " ranks";
    bench::print("copy plan", planning_ms([&] { return plan_copies(items); }, 3), "ms",
                 std::nullopt, size);
    bench::print("most loaded sender", static_cast<double>(plan.value().max_sent_bytes), "bytes",
                 static_cast<double>(plan.value().lower_bound_bytes), size);
  }
}

// The same where another node is on its way to that place, for which the job might wait: where it
// comes late against what a step takes, and where it comes at once, so that both ways are searched.
void measure_weighing(const ChangingJob& job, const std::set<NodeId>& nodes, NodeId comes,
                      const std::string& size) {
  for (const int ready_ms : {20'000, 1}) {
    const auto decide = [&]() -> Result<NextLayout> {
      auto next = next_layout(job, nodes);
      if (!next.ok()) return next;
      const NextLayout& now = next.value();
      if (!wait_outlook(job, {now.plan, now.moves, now.want, nodes}, comes, ready_ms))
        return Error{Errc::internal, "nothing is predicted", {}, {}};
      return next;
    };
    bench::print("deciding after a loss", planning_ms(decide, 3), "ms", 50,
                 size + ", one more ready in " + std::to_string(ready_ms) + " ms");
  }
}

// Whether the layout that was decided on has room for the newest batch, and with it deciding.
void measure_rooms(const ChangingJob& job, const std::set<NodeId>& nodes, const ModelGraph& model,
                   const std::string& size) {
  const bench::BatchOnLayouts batch(model, static_cast<std::int32_t>(job.global_batch));
  const auto decide = [&]() -> Result<NextLayout> {
    auto next = next_layout(job, nodes);
    if (!next.ok()) return next;
    if (auto room = batch.check(next.value().plan); !room.ok()) return std::move(room).error();
    return next;
  };
  bench::print("deciding after a loss, with room for its batch", planning_ms(decide, 3), "ms", 50,
               size + ", " + std::to_string(job.global_batch) + " samples");
  for (const bool has_encoder : {false, true})
    for (const int count : {100, 500})
      for (const int samples : {1024, 4096}) {
        const ModelGraph grown = bench::model_of(96, has_encoder);
        const ParallelPlan plan = bench::plan_of(grown, count);
        const bench::BatchOnLayouts other(grown, samples);
        const bool promised = count == 500 && samples == 4096;
        bench::print("room for a batch", planning_ms([&] { return other.check(plan); }, 3), "ms",
                     promised ? std::optional<double>(50) : std::nullopt,
                     std::to_string(count) + " nodes, 96 layers" +
                         (has_encoder ? " and an encoder" : "") + ", " + std::to_string(samples) +
                         " samples");
      }
}

// From a loss to the layout to go on with: all candidates, and how their state gets there.
void measure_deciding() {
  constexpr std::int32_t kNodes = 500, kLayers = 96;
  constexpr double kBytesPerMs = 1e7, kQuietMs = 6e5;
  const ModelGraph model = bench::model_of(kLayers, false);
  std::vector<ParameterInfo> parameters;
  TemplateRequest request;
  for (std::int32_t l = 0; l < kLayers; ++l) {
    const std::string& name = model.modules[0].layers[static_cast<std::size_t>(l)].name;
    for (std::int32_t p = 0; p < bench::kParametersOfLayer; ++p)
      parameters.push_back(
          {name + "." + std::to_string(p), {1024, 1024}, {{ModuleId{0}, l}}, true});
    request.layers.push_back({1, 2, Bytes{1}, {}});
  }
  request.node_count = kNodes;
  request.device_memory = Bytes{kLayers / 8};  // A pipeline needs eight nodes.
  request.microbatches = 64;
  const TemplateSet set = make_templates(request).value();
  const auto plan = bench::plan_of(model, kNodes);
  std::set<NodeId> nodes = plan.nodes();
  nodes.erase(NodeId{7});
  StatePlacement left = place_state(plan, parameters, Dtype::bf16);
  drop_holders(left, NodeId{7});
  Tolerance tolerance;
  tolerance.lost_nodes = 1;
  tolerance.dtype = Dtype::bf16;
  ChangingJob job{plan, {kNodes, 1}, set, parameters, 4096, tolerance, 0, {}, left};
  job.network_bytes_per_ms = kBytesPerMs;
  job.step_ms = 1000;
  job.quiet_ms = kQuietMs;
  // What a job's memory has room for beside state is looked at apart.
  job.fits = [](const ParallelPlan&) -> Status { return Done{}; };
  job.fits_beside = [](const std::map<DeviceSlot, Bytes>&) -> Status { return Done{}; };
  const std::string size = "500 nodes, 96 layers, one lost";
  bench::print("deciding after a loss", planning_ms([&] { return next_layout(job, nodes); }, 3),
               "ms", 50, size);
  bench::print("its layouts",
               static_cast<double>(
                   relayouts({plan, {kNodes, 1}, set, 4096, tolerance, nodes}).value().size()),
               "", std::nullopt, size);
  measure_weighing(job, nodes, NodeId{7}, size);
  measure_rooms(job, nodes, model, size);
}

}  // namespace

int main() {
  measure_templates();
  measure_instantiation();
  measure_distribution();
  measure_partition();
  measure_module_partition();
  measure_layouts();
  measure_auto_layouts();
  measure_copies();
  measure_deciding();
  return all_planned ? 0 : 1;
}
