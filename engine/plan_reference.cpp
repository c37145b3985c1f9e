// The second kind of reference run: the plan's microbatches, parts and reduction order, without
// stages, messages or transport.

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <sstream>

#include "engine/holder_state.hpp"
#include "engine/packing.hpp"
#include "engine/reference.hpp"
#include "engine/stage_program.hpp"
#include "engine/whole_model.hpp"
#include "kernels/deferred_gradients.hpp"
#include "runtime/data/decode_sample.hpp"
#include "runtime/observe/plan_json.hpp"
#include "runtime/state/gradient_norm.hpp"

namespace troupe::engine {

namespace {

/// Rows of one encoder for one part, on both sides of the boundary.
struct Crossing {
  PartKey part;
  ModuleId encoder;
  at::Tensor output;  ///< With the encoder's graph.
  at::Tensor leaf;    ///< What the llm reads; collects the gradient.
  std::vector<RowSpan> spans;
};

/// One complete copy of the model, as one pipeline trains it.
class Replica {
 public:
  Replica(const JobSetup& setup, const ParallelPlan& plan, PipelineId pipeline, WholeModel model)
      : setup_(setup), plan_(plan), pipeline_(pipeline), model_(std::move(model)) {
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const Holder& holder : plan.groups[g].holders)
        if (plan.at(holder.stage).pipeline == pipeline) add_state(GroupId{g}, holder);
  }

  WholeModel& model() { return model_; }
  HolderState& state(GroupId group, LayerId layer) { return *states_.at({group, layer}).held; }

  /// `backward`: the order in which stages of the plan add up gradients.
  void begin(const std::vector<Action>& backward) {
    for (auto& [key, state] : states_) {
      state.held->zero();
      state.sum = at::zeros_like(state.held->gradients());
      state.turns.clear();
      state.waiting.clear();
      for (const Action& action : backward)
        if (action.stage == state.stage) state.turns.push_back(turn(action));
    }
    splits_weight_ = std::any_of(backward.begin(), backward.end(), [](const Action& action) {
      return action.kind == ActionKind::backward_weight;
    });
    losses_.clear();
  }
  const std::vector<PartLoss>& losses() const { return losses_; }

  /// Forward of all encoder parts, then forward and backward of the llm's parts, then backward of
  /// the encoders'. What each part gives to a parameter is added up in the order of its stage.
  Status train(const IterationPlan& iteration, const SampleStore& store) {
    const auto& cut = iteration.microbatches[pipeline_.index()];
    crossings_.clear();
    for (std::size_t m = 0; m < cut.encoder.size(); ++m)
      for (std::size_t p = 0; p < cut.encoder[m].parts.size(); ++p)
        if (auto done = encode(iteration, {MicrobatchId{m}, PartId{p}}, store); !done.ok())
          return done;
    for (std::size_t m = 0; m < cut.llm.size(); ++m)
      for (std::size_t p = 0; p < cut.llm[m].parts.size(); ++p)
        if (auto done = train_llm(iteration, MicrobatchId{m}, PartId{p}, store); !done.ok())
          return done;
    for (std::size_t m = 0; m < cut.encoder.size(); ++m)
      for (std::size_t p = 0; p < cut.encoder[m].parts.size(); ++p)
        encode_backward({MicrobatchId{m}, PartId{p}});
    for (auto& [key, state] : states_) {
      if (!state.turns.empty() || !state.waiting.empty())
        return Error{Errc::internal,
                     "a gradient of '" + plan_.groups[key.first.index()].name +
                         "' was planned and not made, or made and not planned",
                     {},
                     {}};
      state.held->gradients().copy_(state.sum);
    }
    return Done{};
  }

 private:
  /// When a stage adds what a part gives: with its input gradients, or with its weight gradients.
  struct Turn {
    PartKey part;
    bool weight = false;

    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  static Turn turn(const Action& action) {
    return {{action.microbatch, action.part}, action.kind == ActionKind::backward_weight};
  }
  /// One group at one holder of this pipeline.
  struct State {
    StageId stage;
    std::unique_ptr<HolderState> held;  ///< Gradients of the part at hand.
    at::Tensor sum;
    std::deque<Turn> turns;              ///< Still to come, in the order of the stage.
    std::map<Turn, at::Tensor> waiting;  ///< Made before their turn.
  };

  void add_state(GroupId group, const Holder& holder) {
    auto held =
        std::make_unique<HolderState>(parameters_of(plan_, group, model_.layer(holder.layer)));
    states_[{group, holder.layer}] = {holder.stage, std::move(held), {}, {}, {}};
  }

  /// Takes what the last backward gave to the parameters of one side.
  void take(Side side, Turn made) {
    for (auto& [key, state] : states_) {
      if (side_of(plan_, state.stage) != side) continue;
      state.held->harvest();
      // A stage without rows of this part has no turn for it.
      if (std::find(state.turns.begin(), state.turns.end(), made) != state.turns.end())
        state.waiting[made] = state.held->gradients().clone();
      state.held->gradients().zero_();
      while (!state.turns.empty()) {
        const auto next = state.waiting.extract(state.turns.front());
        if (next.empty()) break;
        state.sum.add_(next.mapped());
        state.turns.pop_front();
      }
    }
  }

  /// Backward of what belongs to one part on one side, as its stages run it.
  void run_backward(Side side, PartKey part, const std::vector<at::Tensor>& roots,
                    const std::vector<at::Tensor>& gradients) {
    if (!splits_weight_) {
      if (!roots.empty()) torch::autograd::backward(roots, gradients);
      return take(side, {part, false});
    }
    const auto deferred = std::make_shared<kernels::DeferredGradients>();
    {
      const kernels::DeferWeightGradients guard(deferred);
      if (!roots.empty()) torch::autograd::backward(roots, gradients);
    }
    take(side, {part, false});
    const c10::NoGradGuard no_grad;
    deferred->run();
    take(side, {part, true});
  }

  void encode_backward(PartKey part) {
    std::vector<at::Tensor> roots, gradients;
    for (const Crossing& crossing : crossings_) {
      if (crossing.part != part || !crossing.output.requires_grad()) continue;
      if (!crossing.leaf.grad().defined()) continue;
      roots.push_back(crossing.output);
      gradients.push_back(crossing.leaf.grad());
    }
    run_backward(Side::encoder, part, roots, gradients);
  }

  Status encode(const IterationPlan& iteration, PartKey key, const SampleStore& store) {
    const auto& part = iteration.microbatches[pipeline_.index()]
                           .encoder[key.microbatch.index()]
                           .parts[key.part.index()]
                           .samples;
    for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
      const ModuleId encoder{m};
      if (plan_.model.at(encoder).kind != ModuleKind::encoder) continue;
      auto batch = pack_media_shapes(encoder, iteration.samples, part);
      if (batch.segments.empty()) continue;
      auto media = pack_media(plan_.model, encoder, iteration.samples, part, store);
      if (!media.ok()) return std::move(media).error();
      batch.input = std::move(media).value();
      at::Tensor rows;
      for (ModuleId module = encoder; plan_.model.at(module).kind != ModuleKind::llm;
           module = plan_.model.at(module).next.front())
        for (auto& layer : model_.layers(module)) rows = layer->forward(rows, batch);
      Crossing crossing{key, encoder, rows, rows.detach(),
                        row_spans(plan_.model, encoder, RowKind::output, iteration.samples, part)};
      crossing.leaf.requires_grad_(rows.requires_grad());
      crossings_.push_back(std::move(crossing));
    }
    return Done{};
  }

  /// Rows of `encoder` for a sample: which crossing has them, and where.
  std::pair<Crossing*, RowSpan> find_rows(ModuleId encoder, std::int32_t sample) {
    for (Crossing& crossing : crossings_)
      if (crossing.encoder == encoder)
        for (const RowSpan& span : crossing.spans)
          if (span.sample == sample) return {&crossing, span};
    return {nullptr, {}};
  }

  Status train_llm(const IterationPlan& iteration, MicrobatchId microbatch, PartId part_id,
                   const SampleStore& store) {
    const auto& part = iteration.microbatches[pipeline_.index()]
                           .llm[microbatch.index()]
                           .parts[part_id.index()]
                           .samples;
    auto batch = pack_text_shapes(iteration.samples, part);
    auto text = pack_text(plan_.model, iteration.samples, part, store);
    if (!text.ok()) return std::move(text).error();
    batch.input = text.value().token_ids;
    batch.labels = text.value().labels;
    for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
      const auto& lists = text.value().media_positions[m];
      for (std::size_t i = 0; i < lists.size(); ++i) {
        if (lists[i].empty()) continue;
        const auto [crossing, span] = find_rows(ModuleId{m}, part[i]);
        if (!crossing) return Error{Errc::internal, "no rows for a sample of the plan", {}, {}};
        batch.media.push_back(
            {at::tensor(lists[i], at::kLong), crossing->leaf.narrow(0, span.begin, span.rows)});
      }
    }
    at::Tensor rows;
    for (auto& layer : model_.layers(plan_.model.llm())) rows = layer->forward(rows, batch);
    record(iteration, microbatch, part_id, part, rows);
    std::vector<at::Tensor> roots, gradients;
    if (rows.requires_grad()) {
      roots.push_back(rows);
      gradients.push_back(at::full(rows.sizes(),
                                   1.0 / static_cast<double>(iteration.trained_tokens),
                                   rows.options().requires_grad(false)));
    }
    run_backward(Side::llm, {microbatch, part_id}, roots, gradients);
    return Done{};
  }

  void record(const IterationPlan& iteration, MicrobatchId microbatch, PartId part_id,
              const std::vector<std::int32_t>& part, const at::Tensor& losses) {
    PartLoss loss{pipeline_, microbatch, part_id, 0, {}};
    const at::Tensor values = losses.detach().to(at::kDouble).contiguous();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const double value = values.data_ptr<double>()[i];
      loss.sum += value;
      if (!std::isfinite(value))
        loss.nonfinite_samples.push_back(
            iteration.samples[static_cast<std::size_t>(part[static_cast<std::size_t>(i)])].id);
    }
    losses_.push_back(std::move(loss));
  }

  const JobSetup& setup_;
  const ParallelPlan& plan_;
  PipelineId pipeline_;
  WholeModel model_;
  std::map<std::pair<GroupId, LayerId>, State> states_;
  bool splits_weight_ = false;
  std::vector<Crossing> crossings_;
  std::vector<PartLoss> losses_;
};

/// All pipelines, their reduction and update.
class Replay {
 public:
  Replay(const JobSetup& setup, const ParallelPlan& plan) : setup_(setup), plan_(plan) {}

  Status build() {
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) {
      auto model = WholeModel::create(setup_);
      if (!model.ok()) return std::move(model).error();
      replicas_.push_back(
          std::make_unique<Replica>(setup_, plan_, PipelineId{p}, std::move(model).value()));
    }
    return Done{};
  }

  WholeModel& model() { return replicas_.front()->model(); }
  const std::map<std::string, at::Tensor>& first_gradients() const { return first_gradients_; }

  Result<StepOutcome> step(const IterationPlan& iteration, const std::vector<Action>& backward,
                           const SampleStore& store, const StepPolicy& policy) {
    std::vector<PartLoss> losses;
    try {
      for (auto& replica : replicas_) {
        replica->begin(backward);
        if (auto done = replica->train(iteration, store); !done.ok())
          return std::move(done).error();
        losses.insert(losses.end(), replica->losses().begin(), replica->losses().end());
      }
    } catch (const c10::Error& error) {
      return Error{Errc::internal, "LibTorch: " + error.msg(), {}, {}};
    }
    const auto norms = reduce();
    if (iteration.step == 1) remember_gradients();
    auto outcome = decide_step(iteration.step, iteration.trained_tokens, losses, norms, policy);
    if (outcome.decision.commit) update(iteration.step, outcome.decision);
    return outcome;
  }

 private:
  HolderState& state(GroupId group, const Holder& holder) {
    return replicas_[plan_.at(holder.stage).pipeline.index()]->state(group, holder.layer);
  }

  std::vector<GroupNorm> reduce() {
    std::vector<GroupNorm> norms;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      const auto& holders = plan_.groups[g].holders;
      at::Tensor& sum = state(GroupId{g}, holders.front()).gradients();
      for (std::size_t i = 1; i < holders.size(); ++i)
        sum.add_(state(GroupId{g}, holders[i]).gradients());
      const double squared = state::squared_norm(sum);
      norms.push_back({GroupId{g}, squared, std::isfinite(squared)});
      for (std::size_t i = 1; i < holders.size(); ++i)
        state(GroupId{g}, holders[i]).gradients().copy_(sum);
    }
    return norms;
  }

  void remember_gradients() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      state(GroupId{g}, plan_.groups[g].holders.front()).copy_gradients(first_gradients_);
  }

  void update(std::int64_t step, const Decision& decision) {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      for (const Holder& holder : plan_.groups[g].holders)
        state(GroupId{g}, holder)
            .update(
                setup_.adamw, step,
                decision.learning_rate * setup_.learning_rate_scales[holder.layer.module.index()],
                decision.clip);
  }

  const JobSetup& setup_;
  const ParallelPlan& plan_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<std::string, at::Tensor> first_gradients_;
};

/// What an earlier run recorded: its layout and its microbatches per step.
struct Recorded {
  ParallelPlan plan;
  std::map<std::int64_t, observe::RecordedIteration> iterations;
};

Result<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.good())
    return Error{Errc::not_found, "cannot read the recorded plan", path.string(),
                 "name the folder of a run that trained at least one step"};
  return text.str();
}

Result<Recorded> read_recorded(const std::filesystem::path& run) {
  auto text = read_text(run / "plan.json");
  if (!text.ok()) return std::move(text).error();
  auto plan = observe::parse_plan(text.value());
  if (!plan.ok()) return std::move(plan).error();
  Recorded recorded{std::move(plan.value().plan), {}};
  auto lines = read_text(run / "iterations.jsonl");
  if (!lines.ok()) return std::move(lines).error();
  std::istringstream stream(lines.value());
  for (std::string line; std::getline(stream, line);) {
    auto iteration = observe::parse_iteration(line);
    if (!iteration.ok()) return std::move(iteration).error();
    const std::int64_t step = iteration.value().step;
    recorded.iterations[step] = std::move(iteration).value();
  }
  return recorded;
}

/// Puts a recorded cut in place of the planned one: samples in its order, its microbatches.
Result<IterationPlan> apply_recorded(const Recorded& recorded, IterationPlan iteration) {
  const auto found = recorded.iterations.find(iteration.step);
  if (found == recorded.iterations.end())
    return Error{Errc::bad_data,
                 "the recorded run has no step " + std::to_string(iteration.step),
                 {},
                 "train no more steps than it did"};
  std::map<std::string, SampleShape> shapes;
  for (auto& shape : iteration.samples) shapes[shape.id] = std::move(shape);
  iteration.samples.clear();
  for (const std::string& id : found->second.ids) {
    const auto shape = shapes.find(id);
    if (shape == shapes.end())
      return Error{Errc::bad_data,
                   "sample '" + id + "' of the recorded step " + std::to_string(iteration.step) +
                       " is not in this batch",
                   {},
                   "use the data, seed and batch size of the recorded run"};
    iteration.samples.push_back(shape->second);
  }
  iteration.microbatches = found->second.microbatches;
  return iteration;
}

}  // namespace

Status train_plan_reference(const JobSetup& setup,
                            const std::optional<std::filesystem::path>& recorded_run,
                            RunFolder& folder, const ReferenceOptions& options) {
  std::optional<Recorded> recorded;
  if (recorded_run) {
    auto read = read_recorded(*recorded_run);
    if (!read.ok()) return std::move(read).error();
    recorded = std::move(read).value();
  }
  auto made = recorded ? Result<ParallelPlan>(recorded->plan) : make_parallel_plan(setup);
  if (!made.ok()) return std::move(made).error();
  const ParallelPlan plan = std::move(made).value();
  auto source = BatchSource::open(setup);
  if (!source.ok()) return std::move(source).error();
  const BatchPlanner planner(plan, planner_options(setup, source.value().record_count(), 0));
  Replay replay(setup, plan);
  if (auto built = replay.build(); !built.ok()) return built;

  const auto step = [&](std::int64_t number, const ReferenceBatch& batch,
                        const StepPolicy& policy) -> Result<ReferenceLoop::StepResult> {
    SampleStore store;
    BatchOrder order{0, number - 1, batch.span.epoch, {}};
    const auto encoders = all_encoders(setup.model);
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& sample : batch.samples) {
      order.samples.push_back(
          {sample.position - batch.span.epoch * source.value().record_count(), encoders, true});
      outcomes.emplace_back(sample);
      store.put(sample.position, std::make_shared<const data::DecodedSample>(sample));
    }
    for (const auto& dropped : batch.dropped) {
      order.samples.push_back({dropped.position, encoders, true});
      outcomes.emplace_back(dropped.why);
    }
    const BatchReport report = report_on(NodeId{0}, order, outcomes, setup, 0);
    auto planned = planner.plan(number - 1, {&report, 1});
    if (!planned.ok()) return std::move(planned).error();
    IterationPlan iteration = std::move(planned.value().iteration);
    auto backward = observe::backward_order(iteration);
    if (recorded && !iteration.samples.empty()) {
      auto applied = apply_recorded(*recorded, std::move(iteration));
      if (!applied.ok()) return std::move(applied).error();
      iteration = std::move(applied).value();
      backward = recorded->iterations.at(iteration.step).backward;
    }
    ReferenceLoop::StepResult result;
    for (const auto& sample : iteration.samples) {
      result.ids.push_back(sample.id);
      result.tokens += sample.llm_tokens;
      result.trained_tokens += sample.trained_tokens;
    }
    auto outcome = replay.step(iteration, backward, store, policy);
    if (!outcome.ok()) return std::move(outcome).error();
    result.outcome = std::move(outcome).value();
    return result;
  };
  ReferenceLoop loop(setup, source.value(), folder, options);
  if (auto trained = loop.run(step); !trained.ok()) return trained;
  if (setup.job.train.dump_gradients)
    if (auto written = folder.write_first_gradients(replay.first_gradients()); !written.ok())
      return written;
  return folder.write_model(replay.model().parameters());
}

}  // namespace troupe::engine
