// The second kind of reference run: the plan's microbatches, parts and reduction order, without
// stages, messages or transport.

#include <sstream>

#include "engine/execution/layer_faults.hpp"
#include "engine/iteration/item_ranges.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/reference/plan_replica.hpp"
#include "engine/reference/reference.hpp"
#include "engine/reference/whole_model.hpp"
#include "runtime/data/samples/decode_sample.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/observe/plan_json.hpp"
#include "runtime/state/gradient_norm.hpp"
#include "runtime/vocabulary/gradient_sum.hpp"

namespace troupe::engine {

namespace {

/// All pipelines of a layout, their reduction and update.
class Replay {
 public:
  Replay(const JobSetup& setup, ParallelPlan plan) : setup_(setup), plan_(std::move(plan)) {}
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  const ParallelPlan& plan() const { return plan_; }

  Status build() {
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) {
      std::vector<WholeModel> models;
      for (std::size_t m = PlanReplica::models_needed(plan_, PipelineId{p}); m > 0; --m) {
        auto model = WholeModel::create(setup_);
        if (!model.ok()) return std::move(model).error();
        models.push_back(std::move(model).value());
      }
      replicas_.push_back(std::make_unique<PlanReplica>(plan_, PipelineId{p}, std::move(models)));
    }
    return Done{};
  }

  /// Goes on from what another layout has trained. Groups do not depend on the layout.
  void take_over(Replay& before) {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      for (const ParameterUse& holder : plan_.groups[g].uses)
        state(GroupId{g}, holder)
            .copy_from(before.state(GroupId{g}, before.plan_.groups[g].uses.front()));
    first_gradients_ = before.first_gradients_;
  }

  WholeModel& model() { return replicas_.front()->model(); }
  ReferenceState saved_state() {
    ReferenceState all;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      for (const ParameterUse& holder : plan_.groups[g].uses) all.add(state(GroupId{g}, holder));
    for (auto& replica : replicas_)
      for (WholeModel& model : replica->models()) all.add_frozen(model);
    return all;
  }
  const std::map<std::string, at::Tensor>& first_gradients() const { return first_gradients_; }

  Result<StepOutcome> step(const IterationPlan& iteration, const std::vector<Action>& backward,
                           const SampleStore& store, const StepPolicy& policy) {
    std::vector<PartLoss> losses;
    std::vector<PartAuxiliary> auxiliary;
    std::vector<GroupNorm> norms;
    try {
      if (auto done = train(iteration, backward, store); !done.ok()) return std::move(done).error();
      for (auto& replica : replicas_) {
        losses.insert(losses.end(), replica->losses().begin(), replica->losses().end());
        auxiliary.insert(auxiliary.end(), replica->auxiliary().begin(), replica->auxiliary().end());
      }
      norms = reduce();
    } catch (...) {
      return layer_fault({});
    }
    if (iteration.step == 1) remember_gradients();
    auto outcome =
        decide_step(iteration.step, iteration.trained_tokens, losses, auxiliary, norms, policy);
    if (outcome.decision.commit) update(iteration.step, outcome.decision);
    return outcome;
  }

 private:
  /// Phase after phase over all pipelines.
  Status train(const IterationPlan& iteration, const std::vector<Action>& backward,
               const SampleStore& store) {
    PlanReplica::Crossings crossings;
    for (auto& replica : replicas_) {
      replica->begin(backward);
      if (auto done = replica->encode(iteration, store, crossings); !done.ok()) return done;
    }
    for (auto& replica : replicas_)
      if (auto done = replica->train_llm(iteration, store, crossings); !done.ok()) return done;
    for (auto& replica : replicas_)
      if (auto done = replica->finish(iteration, crossings); !done.ok()) return done;
    return Done{};
  }

  ParameterShard& state(GroupId group, const ParameterUse& holder) {
    return replicas_[plan_.pipeline_of(holder.stage).index()]->state(group, holder);
  }

  /// In the order of the plan: each holder's own uses, in a tree the holders of a node, then node
  /// after node; in a chain holder after holder.
  std::vector<GroupNorm> reduce() {
    std::vector<GroupNorm> norms;
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      const ParameterGroup& group = plan_.groups[g];
      const GroupSum order = plan_sum(plan_, GroupId{g});
      const auto& chunks = order.chunks;
      at::Tensor sum;
      for (const SumBranch& branch : order.branches) {
        at::Tensor partial;
        for (const std::int32_t place : branch.holders) {
          const SumRole& role = order.roles[static_cast<std::size_t>(place)];
          if (role.uses.empty()) continue;  // On standby: it adds nothing.
          at::Tensor own;
          for (const std::size_t use : role.uses) add(own, gradients(g, use));
          add(partial, own);
        }
        if (partial.defined()) add(sum, partial);
      }
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        const auto measured =
            state::measure_range(sum, {chunks[c].begin, chunks[c].end},
                                 state(GroupId{g}, group.uses.front()).own_updates());
        norms.push_back(
            {GroupId{g}, measured.squared_norm, measured.finite, static_cast<std::int32_t>(c)});
      }
      for (std::size_t use = 0; use < group.uses.size(); ++use)
        if (!gradients(g, use).is_same(sum)) gradients(g, use).copy_(sum);
    }
    return norms;
  }

  at::Tensor& gradients(std::size_t group, std::size_t use) {
    return state(GroupId{group}, plan_.groups[group].uses[use]).gradients();
  }

  static void add(at::Tensor& sum, const at::Tensor& more) {
    if (sum.defined()) {
      sum.add_(more);
    } else {
      sum = more;
    }
  }

  void remember_gradients() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      state(GroupId{g}, plan_.groups[g].uses.front()).copy_gradients(first_gradients_);
  }

  void update(std::int64_t step, const Decision& decision) {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      for (const ParameterUse& holder : plan_.groups[g].uses)
        state(GroupId{g}, holder)
            .update(
                setup_.adamw, step,
                decision.learning_rate * setup_.learning_rate_scales[holder.layer.module.index()],
                decision.clip);
  }

  const JobSetup& setup_;
  const ParallelPlan plan_;
  std::vector<std::unique_ptr<PlanReplica>> replicas_;
  std::map<std::string, at::Tensor> first_gradients_;
};

/// What an earlier run recorded: its layouts and its microbatches per step.
struct Recorded {
  std::map<EpochNumber, ParallelPlan> plans;
  std::map<std::int64_t, observe::RecordedIteration> iterations;
};

Result<std::string> read_text(const std::filesystem::path& path) {
  auto text = files::read_whole(path);
  if (!text)
    return Error{Errc::not_found, "cannot read the recorded plan", path.string(),
                 "name the folder of a run that trained at least one step"};
  return std::move(*text);
}

Error damaged(Error error, std::string where) {
  error.where = std::move(where);
  error.fix = "train that run again, or name another one";
  return error;
}

Result<observe::RecordedPlan> read_plan(const std::filesystem::path& path) {
  auto text = read_text(path);
  if (!text.ok()) return std::move(text).error();
  auto plan = observe::parse_plan(text.value());
  if (!plan.ok()) return damaged(std::move(plan).error(), path.string());
  return plan;
}

Result<Recorded> read_recorded(const std::filesystem::path& run) {
  auto newest = read_plan(run / "plan.json");
  if (!newest.ok()) return std::move(newest).error();
  Recorded recorded{{{newest.value().epoch_number, std::move(newest.value().plan)}}, {}};
  auto lines = read_text(run / "iterations.jsonl");
  if (!lines.ok()) return std::move(lines).error();
  std::istringstream stream(lines.value());
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    auto iteration = observe::parse_iteration(line);
    const std::string where = (run / "iterations.jsonl").string() + ":" + std::to_string(++number);
    if (!iteration.ok()) return damaged(std::move(iteration).error(), where);
    const EpochNumber epoch_number = iteration.value().epoch_number;
    if (!recorded.plans.contains(epoch_number)) {
      auto older = read_plan(RunFolder::older_plan(run, epoch_number));
      if (!older.ok()) return std::move(older).error();
      recorded.plans[epoch_number] = std::move(older.value().plan);
    }
    const std::int64_t step = iteration.value().step;
    recorded.iterations[step] = std::move(iteration).value();
  }
  return recorded;
}

/// The layouts of the run that is repeated, or those of the job.
class Layouts {
 public:
  static Result<Layouts> of_job(const JobSetup& setup) {
    auto first = make_parallel_plan(setup);
    if (!first.ok()) return std::move(first).error();
    auto later = later_layouts(setup);
    if (!later.ok()) return std::move(later).error();
    Layouts layouts;
    layouts.plans_[1] = std::move(first).value();
    for (std::size_t i = 0; i < later.value().size(); ++i) {
      const auto epoch_number = static_cast<EpochNumber>(i + 2);
      layouts.plans_[epoch_number] = std::move(later.value()[i]);
      layouts.begins_[setup.job.debug.layouts[i].step] = epoch_number;
    }
    return layouts;
  }
  static Layouts of_run(const Recorded& recorded) {
    Layouts layouts;
    layouts.plans_ = recorded.plans;
    for (const auto& [step, iteration] : recorded.iterations)
      layouts.begins_[step] = iteration.epoch_number;
    return layouts;
  }

  /// Which one a step is trained on.
  EpochNumber at(std::int64_t step) const {
    const auto after = begins_.upper_bound(step);
    return after == begins_.begin() ? plans_.begin()->first : std::prev(after)->second;
  }
  const ParallelPlan& plan(EpochNumber epoch_number) const { return plans_.at(epoch_number); }

 private:
  std::map<EpochNumber, ParallelPlan> plans_;
  std::map<std::int64_t, EpochNumber> begins_;  ///< By step; the first one begins at the first.
};

/// Puts a recorded cut in place of the planned one: samples in its order, its microbatches.
Result<IterationPlan> apply_recorded(const Recorded& recorded, const ParallelPlan& plan,
                                     IterationPlan iteration) {
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
  iteration.pieces = found->second.pieces;
  const std::string step = "recorded step " + std::to_string(iteration.step);
  for (std::size_t r = 0; r < std::min(plan.replicas.size(), iteration.microbatches.size()); ++r)
    if (plan.is_llm(ReplicaId{r}) &&
        names_pieces(iteration.microbatches[r], iteration.samples.size()))
      return Error{Errc::bad_data,
                   "the llm trains a piece of a sample in the " + step,
                   {},
                   "iterations.jsonl is damaged: record the run again"};
  for (const SamplePiece& piece : iteration.pieces)
    if (!is_sound(piece, iteration.samples))
      return Error{
          Errc::bad_data,
          "sample '" + iteration.sample(piece.sample).id + "' has other media than in the " + step,
          {},
          "use the data of the recorded run"};
  return iteration;
}

/// The plan of a batch as one node that measures and decodes all of it has it made. Fills `store`.
Result<PlannedBatch> plan_batch(const JobSetup& setup, BatchSource& source, BatchPlanner& planner,
                                std::int64_t number, const ReferenceBatch& batch,
                                SampleStore& store) {
  const auto encoders = all_encoders(setup.model);
  BatchOrder measure{0, number, batch.span.epoch, {}};
  for (std::int64_t position = batch.span.begin; position < batch.span.end; ++position)
    measure.samples.push_back({position, encoders, true});
  const BatchReport lengths = report_lengths(NodeId{0}, measure, source.measure(number), 0);
  if (auto ordered = planner.orders(number, {&lengths, 1}); !ordered.ok())
    return std::move(ordered).error();
  BatchOrder order{0, number, batch.span.epoch, {}};
  std::vector<data::DecodeOutcome> outcomes;
  for (const auto& sample : batch.samples) {
    order.samples.push_back(
        {sample.position - source.epochs().places_before(batch.span.epoch), encoders, true});
    outcomes.emplace_back(sample);
    store.put(sample.position, std::make_shared<const data::DecodedSample>(sample));
  }
  for (const auto& dropped : batch.dropped) {
    order.samples.push_back({dropped.position, encoders, true});
    outcomes.emplace_back(dropped.why);
  }
  const BatchReport report = report_on(NodeId{0}, order, outcomes, setup, 0);
  return planner.plan(number, {&report, 1});
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
  auto made = recorded ? Result<Layouts>(Layouts::of_run(*recorded)) : Layouts::of_job(setup);
  if (!made.ok()) return std::move(made).error();
  const Layouts layouts = std::move(made).value();
  auto source = BatchSource::open(setup, options.data);
  if (!source.ok()) return std::move(source).error();
  std::optional<EpochNumber> present;
  std::unique_ptr<Replay> replay;
  std::optional<BatchPlanner> planner;
  const auto turn_to = [&](EpochNumber epoch_number) -> Status {
    if (present == epoch_number) return Done{};
    auto next = std::make_unique<Replay>(setup, layouts.plan(epoch_number));
    if (auto built = next->build(); !built.ok()) return built;
    if (replay) next->take_over(*replay);
    planner.emplace(next->plan(), planner_options(setup, source.value().epochs(), 0));
    if (!replay) planner->restore(options.resume.progress.deals);
    replay = std::move(next);
    present = epoch_number;
    return Done{};
  };
  if (auto ready = turn_to(layouts.at(options.resume.progress.step + 1)); !ready.ok()) return ready;
  if (auto loaded = load_resumed(options, replay->saved_state()); !loaded.ok()) return loaded;

  const auto step = [&](std::int64_t number, const ReferenceBatch& batch,
                        const StepPolicy& policy) -> Result<ReferenceLoop::StepResult> {
    if (auto ready = turn_to(layouts.at(number)); !ready.ok()) return std::move(ready).error();
    SampleStore store;
    auto planned = plan_batch(setup, source.value(), *planner, number - 1, batch, store);
    if (!planned.ok()) return std::move(planned).error();
    IterationPlan iteration = std::move(planned.value().iteration);
    auto backward = observe::backward_order(iteration);
    if (recorded && !iteration.samples.empty()) {
      auto applied =
          apply_recorded(*recorded, layouts.plan(layouts.at(number)), std::move(iteration));
      if (!applied.ok()) return std::move(applied).error();
      iteration = std::move(applied).value();
      backward = recorded->iterations.at(iteration.step).backward;
    }
    ReferenceLoop::StepResult result;
    result.dealt = planned.value().dealt;
    for (const auto& sample : iteration.samples) {
      result.ids.push_back(sample.id);
      result.tokens += sample.llm_tokens;
      result.trained_tokens += sample.trained_tokens;
    }
    auto outcome = replay->step(iteration, backward, store, policy);
    if (!outcome.ok()) return std::move(outcome).error();
    result.outcome = std::move(outcome).value();
    return result;
  };
  ReferenceLoop loop(setup, source.value(), folder, options);
  const auto state = [&] { return replay->saved_state(); };
  if (auto trained = loop.run(step, state); !trained.ok()) return trained;
  if (setup.job.train.dump_gradients && options.resume.is_start())
    if (auto written = folder.write_first_gradients(replay->first_gradients()); !written.ok())
      return written;
  return folder.write_model(replay->model().parameters());
}

}  // namespace troupe::engine
