#include "engine/contract/stage_bench.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "engine/contract/made_samples.hpp"
#include "engine/contract/teachers_apart.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/state/seeded_store.hpp"
#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/user_code.hpp"
#include "scheduler/cost/layer_work.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::engine {

namespace {

constexpr std::int64_t kLookedAt = 100;
/// Values with their moments in two places, gradients of two stages and of two rounds; what a
/// direction moves.
constexpr std::int64_t kCopies = 2 * 3 + 2 + 2 + 3;

/// The job as checks want it: exact, on one thread's device, without files of weights.
job::Job plain_job(job::Job job, std::int64_t samples) {
  job.cluster = {};
  job.parallel = {};
  job.parallel.mode = job::LayoutMode::manual;
  job.scheduler = {};
  job.scheduler.offload_encoders = "moments";  // A plan may ask states for what that takes.
  job.balancer = {};
  job.balancer.policy = "in-order";
  job.train.dtype = Dtype::fp64;
  job.train.global_batch_size = samples;
  job.train.microbatches = 2;
  for (ModuleConfig& module : job.modules) module.init.clear();
  return job;
}

/// Each stage on a node of its own: one per encoder (with its projector) and for the llm, or one
/// per layer.
std::vector<HandStage> stages_of(const ModelGraph& model, bool by_layer) {
  std::vector<HandStage> stages;
  const auto add = [&](HandRun run) {
    stages.push_back({static_cast<std::int32_t>(stages.size()), 0, {std::move(run)}});
  };
  for (const ModuleSpec& module : model.modules) {
    const auto layers = static_cast<std::int32_t>(module.layers.size());
    for (std::int32_t layer = 0; by_layer && layer < layers; ++layer)
      add({module.name, LayerRange{layer, layer + 1}});
    if (!by_layer && module.kind != ModuleKind::projector) add({module.name, {}});
  }
  return stages;
}

/// Two stages of each module of several layers.
std::vector<HandStage> halves_of(const ModelGraph& model) {
  std::vector<HandStage> stages;
  const auto add = [&](HandRun run) {
    stages.push_back({static_cast<std::int32_t>(stages.size()), 0, {std::move(run)}});
  };
  for (const ModuleSpec& module : model.modules) {
    const auto layers = static_cast<std::int32_t>(module.layers.size());
    if (layers > 1) {
      add({module.name, LayerRange{0, layers / 2}});
      add({module.name, LayerRange{layers / 2, layers}});
    } else if (module.kind != ModuleKind::projector) {
      add({module.name, {}});
    }
  }
  return stages;
}

/// What a sample has: encoders with media, one bit each.
std::uint64_t media_of(const SampleShape& shape) {
  std::uint64_t bits = 0;
  for (const auto& media : shape.media) bits |= std::uint64_t{1} << media.module.index();
  return bits;
}

/// The list with an offload behind each forward of an encoder that has a backward, and a fetch
/// before that. (Plans leave out those whose backward comes next: here each is to be tried.)
std::vector<Action> with_offloads(const ParallelPlan& plan, const std::vector<Action>& list) {
  const auto is_of = [](const Action& action, const Action& forward) {
    return action.stage == forward.stage && action.microbatch == forward.microbatch &&
           action.part == forward.part &&
           (action.kind == ActionKind::backward || action.kind == ActionKind::backward_input);
  };
  std::vector<Action> made;
  const auto add = [&](Action action, ActionKind kind) {
    action.kind = kind;
    made.push_back(action);
  };
  for (const Action& action : list) {
    const bool is_backward =
        action.kind == ActionKind::backward || action.kind == ActionKind::backward_input;
    if (is_backward && !plan.is_llm(action.stage)) add(action, ActionKind::fetch);
    made.push_back(action);
    if (action.kind == ActionKind::forward && !plan.is_llm(action.stage) &&
        std::ranges::any_of(list, [&](const Action& other) { return is_of(other, action); }))
      add(action, ActionKind::offload);
  }
  return made;
}

}  // namespace

Result<std::unique_ptr<StageBench>> StageBench::create(const job::Job& job,
                                                       const BenchOptions& options) {
  // As devices with a thread of their own begin, on which some rounds run: bits follow it.
  at::set_num_threads(at::get_num_threads());
  auto setup = prepare(plain_job(job, options.samples));
  if (!setup.ok()) return std::move(setup).error();
  if (auto known = check_stage_families(); !known.ok()) return known.error();
  std::unique_ptr<StageBench> bench(new StageBench(std::move(setup).value()));
  if (auto cut = bench->cut({stages_of(bench->setup_.model, options.is_by_layer)}); !cut.ok())
    return cut.error();
  if (!options.has_own_data) bench->samples_ = made_samples(bench->setup_.data, options.samples);
  if (options.has_own_data)
    if (auto taken = bench->take_samples(options.samples); !taken.ok()) return taken.error();
  if (auto planned = bench->plan_batch(); !planned.ok()) return planned.error();
  if (auto planned = bench->plan_cuts(); !planned.ok()) return planned.error();
  return bench;
}

Result<std::unique_ptr<StageBench>> StageBench::halved() const {
  return recut(halves_of(setup_.model));
}

Result<std::unique_ptr<StageBench>> StageBench::layered() const {
  return recut(stages_of(setup_.model, /*by_layer=*/true));
}

/// The same samples in one pipeline of these stages, in the planned cut alone.
Result<std::unique_ptr<StageBench>> StageBench::recut(std::vector<HandStage> stages) const {
  std::unique_ptr<StageBench> bench(new StageBench(setup_));
  bench->samples_ = samples_;
  if (auto cut = bench->cut({std::move(stages)}); !cut.ok()) return cut.error();
  if (auto planned = bench->plan_batch(); !planned.ok()) return planned.error();
  return bench;
}

Status StageBench::cut(std::vector<std::vector<HandStage>> pipelines) {
  auto& layout = setup_.job.parallel.layout;
  layout.pipelines = std::move(pipelines);
  auto& cluster = setup_.job.cluster;
  cluster.nodes = 0;
  for (const auto& stages : layout.pipelines)
    cluster.nodes += static_cast<std::int32_t>(stages.size());
  cluster.local_nodes = cluster.nodes;
  auto plan = scheduler::place_by_hand(setup_.model, layout, {cluster.nodes, 1});
  if (!plan.ok()) return std::move(plan).error();
  plan_ = with_teachers_apart(plan.value());
  return Done{};
}

Status StageBench::take_samples(std::int64_t count) {
  auto dataset = data::Dataset::open(setup_.data);
  if (!dataset.ok()) return std::move(dataset).error();
  std::vector<data::DecodedSample> good;
  for (std::int64_t i = 0; i < std::min(dataset.value().size(), kLookedAt); ++i) {
    auto outcome = data::decode_sample(dataset.value(), dataset.value()[i], setup_.data);
    if (auto* sample = std::get_if<data::DecodedSample>(&outcome))
      good.push_back(std::move(*sample));
  }
  if (good.size() < 2)
    return Error{Errc::bad_data,
                 std::to_string(good.size()) + " good samples in the first " +
                     std::to_string(std::min(dataset.value().size(), kLookedAt)) + " records",
                 "data.sources", "`troupe data check` says what is wrong with the others"};
  std::ranges::stable_sort(good, {}, &data::DecodedSample::llm_tokens);
  // One of each mixture of media first, then the shortest.
  std::set<std::uint64_t> seen;
  const auto modules = media_modules(setup_);
  std::ranges::stable_partition(good, [&](const data::DecodedSample& sample) {
    return seen.insert(media_of(data::shape_of(sample, setup_.data, modules))).second;
  });
  if (static_cast<std::int64_t>(good.size()) > count) good.resize(static_cast<std::size_t>(count));
  samples_ = std::move(good);
  for (std::size_t i = 0; i < samples_.size(); ++i)
    samples_[i].position = static_cast<std::int64_t>(i);
  setup_.job.train.global_batch_size = static_cast<std::int64_t>(samples_.size());
  return Done{};
}

Status StageBench::plan_batch() {
  const auto count = static_cast<std::int64_t>(samples_.size());
  for (const auto& sample : samples_)
    store_.put(sample.position, std::make_shared<const data::DecodedSample>(sample));
  BatchPlanner planner(plan_, planner_options(setup_, count, 1));
  const auto modules = media_modules(setup_);
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : planner.measures(0)) {
    std::vector<data::MeasureOutcome> own;
    for (const OrderedSample& sample : order.samples)
      own.emplace_back(data::shape_of(samples_[static_cast<std::size_t>(sample.position)],
                                      setup_.data, modules));
    lengths.push_back(report_lengths(node, order, own, 0));
  }
  if (auto ordered = planner.orders(0, lengths); !ordered.ok()) return ordered.error();
  BatchOrder order{1, 0, 0, {}};
  std::vector<data::DecodeOutcome> outcomes;
  for (std::int64_t i = 0; i < count; ++i) {
    order.samples.push_back({i, all_encoders(plan_.model), true});
    outcomes.emplace_back(samples_[static_cast<std::size_t>(i)]);
  }
  const BatchReport report = report_on(NodeId{0}, order, outcomes, setup_, 0);
  auto planned = planner.plan(0, {&report, 1});
  if (!planned.ok()) return std::move(planned).error();
  planned_ = std::move(planned).value();
  offloading_ = planned_.iteration;
  for (auto& list : offloading_.actions) list = with_offloads(plan_, list);
  return Done{};
}

Status StageBench::plan_cuts() {
  for (const Cut cut : {Cut::alone, Cut::deferred, Cut::pieces, Cut::pieces_apart}) {
    scheduler::IterationInput input;
    input.microbatches = microbatches_in(cut, plan_, planned_.iteration);
    if (input.microbatches.empty()) continue;
    input.pieces = pieces_in(cut, plan_, planned_.iteration);
    input.samples = planned_.iteration.samples;
    input.schedule = scheduler::Schedule("split-1f1b");
    auto made = scheduler::plan_iteration(plan_, std::move(input));
    if (!made.ok()) return std::move(made).error();
    cuts_[cut] = std::move(made).value();
  }
  return Done{};
}

const IterationPlan* StageBench::iteration(Cut cut) const {
  if (cut == Cut::planned) return &planned_.iteration;
  const auto found = cuts_.find(cut);
  return found == cuts_.end() ? nullptr : &found->second;
}

/// Rows of a message, or their gradient: of a sample the same, whatever others stand beside it.
at::Tensor StageBench::drawn(const IterationPlan& iteration, const Message& message,
                             bool is_gradient) const {
  const auto stages = plan_.stages.size(), modules = plan_.model.modules.size();
  const std::size_t edge =
      (message.source.stage.index() * stages + message.destination.stage.index()) * modules +
      message.module.index();
  std::vector<at::Tensor> rows;
  for (const SampleRows& own : rows_in(plan_, iteration, message)) {
    const std::size_t place = edge * iteration.samples.size() + at(own.sample);
    auto generator = at::detail::createCPUGenerator(2 * place + (is_gradient ? 1 : 0));
    const at::Tensor whole = at::randn({own.all, message.width}, generator, at::kDouble);
    rows.push_back(whole.narrow(0, own.before, own.rows));
  }
  return at::cat(rows);
}

StageRows StageBench::draw_inputs(StageId id, Cut cut) const {
  StageRows inputs;
  const IterationPlan& iteration = *this->iteration(cut);
  for (std::size_t i = 0; i < iteration.messages.size(); ++i) {
    const Message& message = iteration.messages[i];
    if (message.destination.stage == id)
      inputs.rows[iteration.id_of(i)] = drawn(iteration, message, false);
    if (message.source.stage == id && message.has_backward)
      inputs.gradients[iteration.id_of(i)] = drawn(iteration, message, true);
  }
  return inputs;
}

Result<StateStore> StageBench::state(StageId id) const {
  return seeded_store(setup_, plan_, plan_.at(id).devices.front());
}

Result<StateStore> StageBench::copy(const StateStore& state) const {
  StateStore copied(state.device(), setup_.parameters, Dtype::fp64);
  const auto want = scheduler::place_state(plan_, setup_.parameters, Dtype::fp64);
  if (auto staged = copied.stage(want); !staged.ok()) return staged.error();
  for (const ShardKey& key : state.keys()) copied.incoming(key).copy_(state.held(key));
  copied.settle();
  return copied;
}

Result<std::unique_ptr<StageProgram>> StageBench::make(StageId id, const StateStore& state) const {
  return make_stage({plan_, id, setup_.modules(), setup_.layers, state});
}

Result<std::unique_ptr<StageProgram>> StageBench::make_built_in(StageId id,
                                                                const StateStore& state) const {
  return built_in_stage({plan_, id, setup_.modules(), setup_.layers, state});
}

std::string StageBench::kind_of(StageId id) const {
  return stage_kind_of(plan_, id, setup_.modules());
}

bool StageBench::offloads(StageId id) const {
  return engine::offloads(plan_, id, setup_.modules()) &&
         !traffic_of(plan_, planned_.iteration, id).backward.empty();
}

bool StageBench::has_module(StageId id, const std::string& module) const {
  return std::ranges::any_of(plan_.at(id).runs, [&](const LayerRun& run) {
    return plan_.model.at(run.module).name == module;
  });
}

std::vector<StageId> StageBench::halves_in(const StageBench& whole, StageId id) const {
  std::vector<StageId> found;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    const LayerRun& run = plan_.stages[s].runs.front();
    const ModuleSpec& module = plan_.model.at(run.module);
    if (std::cmp_less(run.layers.size(), module.layers.size()) && whole.has_module(id, module.name))
      found.emplace_back(s);
  }
  return found;
}

Status StageBench::run_alone(StageId id) const {
  const auto own = state(id);
  if (!own.ok()) return own.error();
  const auto stage = call_guarded(Errc::internal, [&] { return make(id, own.value()); });
  if (!stage.ok()) return stage.error();
  const auto outcome = round(*stage.value(), id, {}, draw_inputs(id));
  return outcome.ok() ? Status(Done{}) : Status(outcome.error());
}

/// What tells the parameters of one kind of layer from another's, in words: names without numbers,
/// sizes, and what trains.
std::vector<std::string> StageBench::parameters_of(LayerId layer) const {
  std::vector<std::string> words;
  for (const ParameterInfo& parameter : setup_.parameters) {
    if (!std::ranges::count(parameter.uses, layer)) continue;
    std::string text = parameter.name;
    std::erase_if(text, [](char c) { return '0' <= c && c <= '9'; });
    for (const std::int64_t size : parameter.shape) text += " " + std::to_string(size);
    words.push_back(text + (parameter.trains ? " trains" : ""));
  }
  return words;
}

LoneLayer StageBench::layer_of(StageId id) const {
  const LayerRun& run = plan_.at(id).runs.front();
  const auto works = scheduler::model_works(setup_.model, setup_.modules());
  const auto& of_module = works[run.module.index()];
  const LayerWork& own = of_module[at(run.layers.begin)];
  const auto parameters = parameters_of({run.module, run.layers.begin});
  LoneLayer layer{plan_.model.at(run.module).layers[at(run.layers.begin)].name, own.kind, 0};
  for (std::int32_t other = 0; std::cmp_less(other, of_module.size()); ++other) {
    if (of_module[at(other)] != own || parameters_of({run.module, other}) != parameters) continue;
    if (layer.alike == 0) layer.is_first = other == run.layers.begin;
    ++layer.alike;
  }
  return layer;
}

Bytes StageBench::memory_for(StageId id) const {
  std::int64_t elements = 0;
  for (const ParameterInfo& parameter : setup_.parameters)
    if (std::ranges::any_of(parameter.uses, [&](const LayerId& use) {
          return std::ranges::any_of(plan_.at(id).runs, [&](const LayerRun& run) {
            return run.module == use.module && run.layers.begin <= use.layer &&
                   use.layer < run.layers.end;
          });
        }))
      elements += parameter.elements();
  return Bytes{kCopies * elements * static_cast<std::int64_t>(sizeof(double))};
}

bool StageBench::trains(const std::string& parameter) const {
  const auto known = std::ranges::find(setup_.parameters, parameter, &ParameterInfo::name);
  return known != setup_.parameters.end() && known->trains;
}

}  // namespace troupe::engine
