#include "scheduler/iteration/plan_iteration.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/deal_microbatches.hpp"
#include "scheduler/iteration/deliveries.hpp"
#include "scheduler/iteration/offload_actions.hpp"
#include "scheduler/iteration/parameter_actions.hpp"
#include "scheduler/iteration/redistribution.hpp"
#include "scheduler/iteration/relays.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/iteration/sum_actions.hpp"
#include "scheduler/iteration/update_actions.hpp"

namespace troupe::scheduler {

namespace {

Error wrong(std::string message, std::string fix) {
  return Error{Errc::invalid_argument, std::move(message), "plan_iteration", std::move(fix)};
}

/// Sizes of `pieces` nearly equal pieces of `count`, larger ones first.
std::vector<std::int32_t> even_pieces(std::int32_t count, std::int32_t pieces) {
  std::vector<std::int32_t> sizes;
  for (std::int32_t i = 0; i < pieces; ++i)
    sizes.push_back(count / pieces + (i < count % pieces ? 1 : 0));
  return sizes;
}

/// Counts how often each unit stands in one group, and refuses empty lists and bad indices. `where`
/// names the replica, which only an error needs.
template <class Where>
Status count_places(const std::vector<Microbatch>& list, const Where& where,
                    std::vector<std::int32_t>& places) {
  for (std::size_t m = 0; m < list.size(); ++m) {
    const auto named = [&] { return where() + " microbatch " + std::to_string(m); };
    if (list[m].parts.empty()) return wrong(named() + " has no part", "leave it out");
    for (const auto& part : list[m].parts) {
      if (part.samples.empty()) return wrong(named() + " has an empty part", "leave it out");
      for (const auto sample : part.samples) {
        if (sample < 0 || at(sample) >= places.size())
          return wrong(named() + " names sample or piece " + std::to_string(sample) + " of " +
                           std::to_string(places.size()),
                       "use indices into the iteration's samples, from 0, and then its pieces");
        ++places[at(sample)];
      }
    }
  }
  return Done{};
}

/// Which items of samples the pieces in one group are. `places`: of all units.
class PiecesOfGroup {
 public:
  PiecesOfGroup(std::size_t samples, std::span<const SamplePiece> pieces,
                std::span<const std::int32_t> places) {
    for (std::size_t p = 0; p < pieces.size(); ++p)
      for (std::int32_t i = 0; i < places[samples + p]; ++i)
        ranges_[{pieces[p].sample, pieces[p].module}].push_back(pieces[p]);
    for (auto& [key, own] : ranges_) std::sort(own.begin(), own.end());
  }

  bool any_of(std::int32_t sample) const {
    const auto found = ranges_.lower_bound({sample, ModuleId{}});
    return found != ranges_.end() && found->first.first == sample;
  }

  /// Whether they have each item of the sample for these modules once, and no other.
  bool are_whole(std::int32_t sample, const SampleShape& shape,
                 const std::vector<ModuleId>& modules) const {
    std::size_t found = 0;
    for (const ModuleId module : modules) {
      const auto* items = shape.items(module);
      const auto own = ranges_.find({sample, module});
      if (own == ranges_.end() && items == nullptr) continue;
      if (own == ranges_.end()) return false;
      std::int32_t next = 0;
      for (const SamplePiece& piece : own->second) {
        if (piece.first != next) return false;
        next += piece.count;
      }
      if (items == nullptr || at(next) != items->size()) return false;
      ++found;
    }
    const auto begin = ranges_.lower_bound({sample, ModuleId{}});
    const auto end = ranges_.lower_bound({sample + 1, ModuleId{}});
    return std::distance(begin, end) == static_cast<std::ptrdiff_t>(found);
  }

 private:
  std::map<std::pair<std::int32_t, ModuleId>, std::vector<SamplePiece>> ranges_;
};

/// `places`: how often each unit stands in parts of this group.
Status check_places(std::span<const SampleShape> samples, std::span<const SamplePiece> all_pieces,
                    const ModuleGroup& group, std::span<const std::int32_t> places) {
  const PiecesOfGroup pieces(samples.size(), all_pieces, places);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const SampleShape& shape = samples[s];
    const auto sample = static_cast<std::int32_t>(s);
    const bool is_cut = pieces.any_of(sample);
    if (!is_cut && places[s] == 1) continue;
    const std::string name = "sample " + std::to_string(s) + " ('" + shape.id + "')";
    if (!is_cut)
      return wrong(name + " stands in " + std::to_string(places[s]) + " parts of " + group.name,
                   "each sample belongs into exactly one part of every module group");
    if (places[s] > 0)
      return wrong(name + " stands in parts of " + group.name + " whole and in pieces",
                   "use its pieces there, or the sample");
    if (!pieces.are_whole(sample, shape, group.modules))
      return wrong("pieces of " + name + " in " + group.name + " are not the whole sample",
                   "have each item of it for each encoder of the group in exactly one part");
  }
  return Done{};
}

Status check_input(const ParallelPlan& plan, std::span<const SampleShape> samples,
                   const IterationInput& input) {
  if (!input.max_in_flight.empty() && input.max_in_flight.size() != plan.stages.size())
    return wrong("bounds for " + std::to_string(input.max_in_flight.size()) + " of " +
                     std::to_string(plan.stages.size()) + " stages",
                 "give max_in_flight one entry per stage, or none");
  if (input.microbatches.size() != plan.replicas.size())
    return wrong("microbatches for " + std::to_string(input.microbatches.size()) +
                     " replicas, but the plan has " + std::to_string(plan.replicas.size()),
                 "give one list per replica, an empty one where a replica has no samples");
  for (std::size_t p = 0; p < input.pieces.size(); ++p)
    if (!is_sound(input.pieces[p], samples))
      return wrong("piece " + std::to_string(p) + " is of items that are not there",
                   "name a sample, an encoder that has items of it, and some of these");
  for (std::size_t s = 0; s < samples.size(); ++s)
    if (samples[s].llm_tokens < 1)
      return wrong("sample " + std::to_string(s) + " ('" + samples[s].id + "') has no llm tokens",
                   "a sample needs at least one token");
  std::vector<std::vector<std::int32_t>> places(
      plan.module_groups.size(), std::vector<std::int32_t>(samples.size() + input.pieces.size()));
  for (std::size_t r = 0; r < input.microbatches.size(); ++r) {
    const auto group = plan.replicas[r].group.index();
    const auto where = [&] {
      return "replica " + std::to_string(r) + " (" + plan.module_groups[group].name + ")";
    };
    if (auto s = count_places(input.microbatches[r], where, places[group]); !s.ok()) return s;
  }
  for (std::size_t g = 0; g < places.size(); ++g)
    if (auto s = check_places(samples, input.pieces, plan.module_groups[g], places[g]); !s.ok())
      return s;
  return Done{};
}

/// Costs that only serve to merge stages which share a device.
double nominal_cost(StageId, const std::vector<std::int32_t>&, TaskKind kind) {
  return kind == TaskKind::backward ? 2 : 1;
}

Action compute_action(const Task& task) {
  Action action;
  switch (task.kind) {
    case TaskKind::forward: action.kind = ActionKind::forward; break;
    case TaskKind::backward: action.kind = ActionKind::backward; break;
    case TaskKind::backward_input: action.kind = ActionKind::backward_input; break;
    case TaskKind::backward_weight: action.kind = ActionKind::backward_weight; break;
  }
  action.stage = StageId{task.stage};
  action.microbatch = MicrobatchId{task.microbatch};
  action.part = PartId{task.part};
  return action;
}

/// A transfer seen from the stage that acts.
Action transfer(ActionKind kind, StageId stage, MessageId message) {
  Action action;
  action.kind = kind;
  action.stage = stage;
  action.message = message;
  return action;
}

/// The compute of a device with its transfers: receives right before, sends right after. Relays
/// stand between.
void append_compute(const IterationGraph& graph, const DeliveryActions& deliveries,
                    const std::vector<std::int32_t>& order, const std::vector<PlacedRelay>& relays,
                    std::vector<Action>& actions) {
  auto relay = relays.begin();
  const auto append_relays = [&](std::size_t before) {
    for (; relay != relays.end() && relay->before == before; ++relay)
      actions.push_back(relay->action);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    append_relays(i);
    const std::int32_t index = order[i];
    const Task& task = graph.tasks.tasks[at(index)];
    const StageId stage{task.stage};
    const bool forward = task.kind == TaskKind::forward;
    for (const auto message : graph.receives[at(index)])
      actions.push_back(
          transfer(forward ? ActionKind::receive : ActionKind::receive_gradient, stage, message));
    const Action compute = compute_action(task);
    if (forward)
      for (const Action& receive : deliveries.receives({stage, compute.microbatch, compute.part}))
        actions.push_back(receive);
    actions.push_back(compute);
    for (const auto message : graph.sends[at(index)])
      actions.push_back(
          transfer(forward ? ActionKind::send : ActionKind::send_gradient, stage, message));
  }
  append_relays(order.size());
}

/// The end of the step on every device.
void append_tail(const ParallelPlan& plan, std::vector<std::vector<Action>>& actions) {
  append_sums(plan, actions);
  for (std::size_t d = 0; d < actions.size(); ++d) {
    if (!plan.is_lead(DeviceId{d})) continue;
    Action commit;
    commit.kind = ActionKind::commit;
    actions[d].push_back(commit);
  }
  append_updates(plan, actions);
}

}  // namespace

MicrobatchList cut_by_count(std::int32_t begin, std::int32_t count, std::int32_t microbatches) {
  MicrobatchList list;
  for (const auto size : even_pieces(count, std::min(count, microbatches))) {
    Part part;
    for (std::int32_t i = 0; i < size; ++i) part.samples.push_back(begin++);
    list.push_back({{std::move(part)}});
  }
  return list;
}

std::vector<MicrobatchList> assign_by_count(const ParallelPlan& plan, std::int32_t sample_count,
                                            std::int32_t microbatches) {
  std::int32_t llm_replicas = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    llm_replicas += plan.is_llm(ReplicaId{r}) ? 1 : 0;
  const auto pieces = even_pieces(sample_count, llm_replicas);
  auto own = pieces.begin();
  std::int32_t next = 0;
  const auto samples_of_microbatch = [](ReplicaId, const Microbatch& microbatch) {
    return static_cast<double>(microbatch.parts.front().samples.size());
  };
  std::vector<MicrobatchList> assignment(plan.replicas.size());
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    std::vector<ReplicaCut> cuts(replicas_by_group(plan, PipelineId{p}).back().size());
    for (ReplicaCut& cut : cuts) {
      cut.encoder = cut.llm = cut_by_count(next, *own, microbatches);
      next += *own++;
    }
    deal_microbatches(plan, PipelineId{p}, std::move(cuts), samples_of_microbatch, assignment);
  }
  return assignment;
}

Result<IterationPlan> plan_iteration(const ParallelPlan& plan, IterationInput input) {
  auto samples = std::move(input.samples);
  auto made = plan_iteration(plan, samples, std::move(input));
  if (made.ok()) made.value().samples = std::move(samples);
  return made;
}

Result<IterationPlan> plan_iteration(const ParallelPlan& plan, std::span<const SampleShape> samples,
                                     IterationInput input) {
  if (auto status = check_input(plan, samples, input); !status.ok()) return status.error();
  IterationPlan iteration;
  iteration.step = input.step;
  iteration.epoch_number = input.epoch_number;
  iteration.pieces = std::move(input.pieces);
  iteration.microbatches = std::move(input.microbatches);
  for (const auto& sample : samples) iteration.trained_tokens += sample.trained_tokens;

  std::optional<SampleUnits> made;
  const SampleUnits& units = input.units ? *input.units : made.emplace(samples, iteration.pieces);
  const auto known = input.flow ? std::move(input.flow)
                                : std::make_shared<const RowFlow>(plan.model, units.shapes());
  const RowFlow& flow = *known;
  iteration.messages = plan_messages(plan, flow, iteration.microbatches, units);
  iteration.boundaries = choose_routes(plan, iteration.messages, input.routes);
  auto deliveries = plan_deliveries(plan, flow, iteration.microbatches, units);
  if (!deliveries.ok()) return std::move(deliveries).error();
  iteration.deliveries = std::move(deliveries).value();
  if (!input.task_cost) input.task_cost = nominal_cost;
  if (!input.message_cost) input.message_cost = [](const Message&) { return 0.0; };
  const auto graph =
      iteration_graph(plan, flow, iteration.microbatches, iteration.messages,
                      splits_weight_gradient(input.schedule), input.task_cost, input.message_cost);
  RefuseBound refuse;
  if (input.refuse_bound)
    refuse = [&](std::int32_t stage, std::int32_t needed) {
      return input.refuse_bound(StageId{stage}, needed, iteration.microbatches);
    };
  auto timeline = make_schedule(graph.tasks, input.schedule, input.max_in_flight, refuse);
  if (!timeline.ok()) return timeline.error();

  iteration.actions.resize(plan.devices.size());
  const auto& order = timeline.value().order;
  const DeliveryActions content(iteration.deliveries);
  const auto relays = place_relays(plan, graph, iteration.messages, order, input.routes.link_ms);
  for (std::size_t d = 0; d < iteration.actions.size(); ++d)
    iteration.actions[d] = content.sends(DeviceId{d});
  for (std::size_t d = 0; d < order.size(); ++d)
    append_compute(graph, content, order[d], relays[d], iteration.actions[d]);
  if (input.offload_encoders) add_offloads(plan, iteration.actions);
  add_parameter_moves(plan, iteration.actions);
  append_tail(plan, iteration.actions);
  iteration.max_in_flight = in_flight_peaks(graph.tasks, order);
  return iteration;
}

}  // namespace troupe::scheduler
