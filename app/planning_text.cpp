#include "app/planning_text.hpp"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "app/boundary_text.hpp"
#include "app/phase_text.hpp"
#include "app/standby_text.hpp"
#include "app/terminal.hpp"
#include "app/text_table.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/observe/plan_words.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/cost/profile_batch.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::app {

namespace {

/// `0`, `0-7`, or `0 2 4` where the devices of a stage do not follow one another.
std::string devices_text(const ParallelPlan& plan, const Stage& stage) {
  const auto index = [&](DeviceId id) { return plan.devices[id.index()].local_index; };
  const std::int32_t first = index(stage.devices.front()), last = index(stage.devices.back());
  std::string text = std::to_string(first);
  if (stage.devices.size() == 1) return text;
  bool in_row = true;
  for (std::size_t r = 0; r < stage.devices.size(); ++r)
    in_row = in_row && index(stage.devices[r]) == first + static_cast<std::int32_t>(r);
  if (in_row) return text + "-" + std::to_string(last);
  for (std::size_t r = 1; r < stage.devices.size(); ++r)
    text += " " + std::to_string(index(stage.devices[r]));
  return text;
}

/// Bytes on the fullest device of a stage.
double peak_of(const scheduler::AutoLayout& layout, const Stage& stage) {
  double peak = 0;
  for (const DeviceId device : stage.devices)
    peak = std::max(peak, layout.predicted.peak_memory_bytes[device.index()]);
  return peak;
}

void print_templates(const PlanningNotes& notes) {
  if (!notes.no_templates.empty()) std::cout << "\ntemplates: " << notes.no_templates << '\n';
  if (!notes.templates) return;
  std::cout << "\ntemplates, by nodes of a pipeline:\n";
  for (const auto& made : notes.templates->templates) {
    std::string stages;
    for (const auto& stage : made.stages)
      stages += " " + std::to_string(stage.layers.begin) + "-" +
                std::to_string(stage.layers.end - 1) +
                (stage.gpu_count > 1 ? "x" + std::to_string(stage.gpu_count) : "");
    if (stages.size() > 60) stages = stages.substr(0, 57) + "...";
    std::cout << "  " << padded(std::to_string(made.node_count), 4, true) << "  "
              << padded(time_text(made.microbatch_ms), 9, true) << " per microbatch  layers"
              << stages << '\n';
  }
}

char letter(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return 'F';
    case ActionKind::backward:
    case ActionKind::backward_input: return 'B';
    case ActionKind::backward_weight: return 'W';
    case ActionKind::reduce_partial:
    case ActionKind::reduce: return 'r';
    case ActionKind::optimizer_step: return 'o';
    default: return '.';
  }
}

Json templates_json(const scheduler::TemplateSet& set) {
  Json list = Json::array();
  for (const auto& made : set.templates) {
    Json stages = Json::array();
    for (const auto& stage : made.stages)
      stages.push_back({{"layers", {stage.layers.begin, stage.layers.end}},
                        {"node", stage.node},
                        {"gpus", stage.gpu_count}});
    list.push_back({{"nodes", made.node_count},
                    {"microbatch_ms", made.microbatch_ms},
                    {"stages", std::move(stages)}});
  }
  return list;
}

}  // namespace

std::string cluster_text(const Planning& planning) {
  const auto& request = planning.request;
  return planning.setup.job.job.name + ": " + std::to_string(request.cluster.nodes) +
         (request.cluster.nodes == 1 ? " node x " : " nodes x ") +
         std::to_string(request.cluster.devices_per_node) + " " + planning.device + ", " +
         planning.costs + " times, " + std::to_string(request.global_batch) +
         " samples per step, " + std::to_string(request.microbatches) +
         " microbatches per pipeline, " + request.schedule.name;
}

std::int64_t llm_replicas(const ParallelPlan& plan) {
  std::int64_t count = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) count += plan.is_llm(ReplicaId{r}) ? 1 : 0;
  return count;
}

namespace {

/// Whether module groups have numbers of replicas of their own.
bool has_own_numbers(const ParallelPlan& plan) {
  return plan.replicas.size() != plan.pipelines.size() * plan.module_groups.size();
}

std::map<std::string, std::int64_t> replicas_by_group(const ParallelPlan& plan) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& replica : plan.replicas)
    ++counts[plan.module_groups[replica.group.index()].name];
  return counts;
}

/// Where a stage belongs: its pipeline and its number there; with numbers of their own the replica,
/// counted in its group, as `vision 2`.
std::pair<std::string, std::string> place_of(const ParallelPlan& plan, StageId stage) {
  const ReplicaId replica = plan.at(stage).replica;
  if (!has_own_numbers(plan)) {
    const PipelineId pipeline = plan.pipeline_of(stage);
    return {std::to_string(pipeline.value),
            std::to_string(stage.index() - plan.stages_of(pipeline).front().index())};
  }
  std::int64_t number = 0;
  for (std::size_t r = 0; r < replica.index(); ++r)
    number += plan.replicas[r].group == plan.at(replica).group ? 1 : 0;
  return {plan.module_groups[plan.at(replica).group.index()].name + " " + std::to_string(number),
          std::to_string(stage.index() - plan.at(replica).stages.front().index())};
}

}  // namespace

std::string copies_text(const ParallelPlan& plan) {
  const auto pipelines = plan.pipelines.size();
  if (!has_own_numbers(plan))
    return std::to_string(pipelines) + (pipelines == 1 ? " pipeline" : " pipelines");
  const auto counts = replicas_by_group(plan);
  std::string text;
  for (const auto& group : plan.module_groups)
    text += (text.empty() ? "replicas: " : ", ") + std::to_string(counts.at(group.name)) + " of " +
            group.name;
  return text;
}

void print_stages(const Planning& planning, const scheduler::AutoLayout& layout) {
  constexpr std::size_t kShown = 40;
  const auto memory = static_cast<double>(planning.request.device_memory.count());
  std::vector<std::vector<std::string>> rows{{has_own_numbers(layout.plan) ? "replica" : "pipe",
                                              "stage", "node", "device", "layers", "memory",
                                              "limit", "work", "idle"}};
  for (std::size_t s = 0; s < layout.plan.stages.size() && s < kShown; ++s) {
    const Stage& stage = layout.plan.stages[s];
    auto [copy, number] = place_of(layout.plan, StageId{s});
    rows.push_back(
        {std::move(copy), std::move(number), std::to_string(layout.plan.node_of(StageId{s}).value),
         devices_text(layout.plan, stage), observe::stage_words(layout.plan, stage),
         size_text(peak_of(layout, stage)), memory > 0 ? size_text(memory) : "-",
         time_text(layout.predicted.stage_ms[s]), percent(layout.predicted.stage_bubble[s])});
  }
  print_table(std::move(rows), {4}, 4);
  if (layout.plan.stages.size() > kShown)
    std::cout << "  ... and " << layout.plan.stages.size() - kShown
              << " more stages; --json lists all\n";
  for (const auto& line : engine::stage_kind_lines(layout.plan, planning.setup.modules()))
    std::cout << wrapped(line, 2) << '\n';
}

namespace {

/// The device that copies most of the state while a checkpoint is saved; none where none is.
std::optional<std::pair<DeviceSlot, Bytes>> largest_copy(const Planning& planning,
                                                         const scheduler::AutoLayout& layout) {
  const auto copies = engine::checkpoint_copies(planning.setup.job, layout.plan);
  if (copies.empty()) return std::nullopt;
  return *std::max_element(copies.begin(), copies.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
}

void print_checkpoint_copy(const Planning& planning, const scheduler::AutoLayout& layout) {
  const auto largest = largest_copy(planning, layout);
  if (!largest) return;
  std::cout << "memory while a checkpoint is saved: "
            << size_text(static_cast<double>(largest->second.count()))
            << " more at most, for a copy of the state (node " << largest->first.node.value
            << ")\n";
}

/// Activations, moments and parameters of encoders that a job has there.
void print_host_memory(const scheduler::AutoLayout& layout) {
  const auto& bytes = layout.predicted.peak_host_bytes;
  const double most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  if (most > 0)
    std::cout << "host memory: " << size_text(most) << " of a device at most (offload_encoders)\n";
}

}  // namespace

Json planning_json(const Planning& planning, const scheduler::AutoLayout& layout) {
  const auto& request = planning.request;
  return {{"cluster",
           {{"nodes", request.cluster.nodes},
            {"devices_per_node", request.cluster.devices_per_node},
            {"device", planning.device},
            {"device_memory_bytes", request.device_memory.count()}}},
          {"costs", planning.costs},
          {"chosen", !planning.by_hand},
          {"pipelines", layout.plan.pipelines.size()},
          {"replicas", replicas_by_group(layout.plan)},
          {"microbatches", request.microbatches},
          {"schedule", request.schedule.name}};
}

Json stages_json(const Planning& planning, const scheduler::AutoLayout& layout) {
  Json stages = Json::array();
  for (std::size_t s = 0; s < layout.plan.stages.size(); ++s) {
    const Stage& stage = layout.plan.stages[s];
    Json devices = Json::array();
    for (const DeviceId device : stage.devices)
      devices.push_back(layout.plan.devices[device.index()].local_index);
    stages.push_back(
        {{"pipeline", layout.plan.pipeline_of(StageId{s}).value},
         {"node", layout.plan.node_of(StageId{s}).value},
         {"devices", std::move(devices)},
         {"tp", stage.grid.tp},
         {"cp", stage.grid.cp},
         {"runs", runs_json(layout.plan, stage)},
         {"stage_kind", engine::stage_kind_of(layout.plan, StageId{s}, planning.setup.modules())},
         {"work_ms", layout.predicted.stage_ms[s]},
         {"idle", layout.predicted.stage_bubble[s]},
         {"memory_bytes", peak_of(layout, stage)},
         {"host_memory_bytes", layout.predicted.peak_host_bytes[stage.devices.front().index()]}});
  }
  return stages;
}

namespace {

/// What is amiss with the job, and with its batch.
std::vector<std::string> warnings_of(const Planning& planning, const PlanningNotes& notes) {
  auto warnings = planning.warnings;
  const auto warning = scheduler::batch_warning(planning.request.global_batch, notes.b_min);
  if (!warning.empty()) warnings.push_back(warning);
  return warnings;
}

/// Where encoders stand, and what a step with them elsewhere takes, in steps of this layout.
Json encoders_json(const scheduler::AutoLayout& layout) {
  const auto placement = scheduler::encoder_placement(layout.plan);
  if (!placement) return nullptr;
  Json json{{"placement", scheduler::to_string(*placement)}};
  if (const auto& other = layout.other_placement)
    json["other"] = {{"placement", scheduler::to_string(other->placement)},
                     {"fits", other->fits},
                     {"step_ms", other->step_ms},
                     {"ratio", other->step_ms / layout.placed_ms}};
  return json;
}

}  // namespace

Json layout_json(const Planning& planning, const PlannedStep& planned, const PlanningNotes& notes) {
  const scheduler::AutoLayout& layout = planned.layout;
  Json json = planning_json(planning, layout);
  json["step_ms"] = layout.predicted.step_ms;
  if (layout.one_number_ms) json["one_number_ratio"] = *layout.one_number_ms / planned.mean_ms;
  json["encoders"] = encoders_json(layout);
  json["step_ms_min"] = planned.least_ms;
  json["step_ms_max"] = planned.most_ms;
  json["bubble"] = layout.predicted.bubble;
  json["b_min"] = notes.b_min;
  json["simulated"] = layout.simulated;
  json["judged"] = layout.judged;
  const auto degrees = scheduler::module_degrees(layout.plan);
  for (std::size_t m = 0; m < degrees.size(); ++m)
    json["degrees"][planning.setup.model.modules[m].name] = {{"tp", degrees[m].tp},
                                                             {"cp", degrees[m].cp}};
  json["stages"] = stages_json(planning, layout);
  const auto copy = largest_copy(planning, planned.layout);
  json["checkpoint_copy_bytes"] = copy ? copy->second.count() : 0;
  json["standby"] = standbys_json(planning, layout);
  json["boundaries"] = boundaries_json(planned);
  add_phases(planning, planned, json);
  json["reasons"] = Json::array();
  for (const auto& reason : layout.reasons)
    json["reasons"].push_back({{"choice", reason.choice}, {"why", reason.why}});
  json["warnings"] = warnings_of(planning, notes);
  json["suggestions"] = Json::array();
  for (const auto& suggestion : notes.suggestions)
    json["suggestions"].push_back({{"key", suggestion.key},
                                   {"value", suggestion.value},
                                   {"step_ms", suggestion.step_ms},
                                   {"text", suggestion.text}});
  if (notes.templates) json["templates"] = templates_json(*notes.templates);
  return json;
}

std::string timeline_text(const scheduler::AutoLayout& layout, const PredictedBatch& batch) {
  constexpr std::size_t kShown = 16;
  const ParallelPlan& plan = layout.plan;
  struct Line {
    std::string name, marks;
  };
  std::map<DeviceId, Line> lines;  // Of all devices that run a list together, by the first one.
  const auto sizes = plan.team_sizes();
  std::size_t label = 10, left = 0;
  for (std::size_t d = 0; d < plan.devices.size(); ++d) {
    if (sizes[d] == 0) continue;
    if (lines.size() == kShown) {
      ++left;
      continue;
    }
    const auto& slot = plan.devices[d];
    std::string& name = lines[DeviceId{d}].name;
    name = "n" + std::to_string(slot.node.value) + ".d" + std::to_string(slot.local_index);
    if (sizes[d] > 1) name += " x" + std::to_string(sizes[d]);
    label = std::max(label, name.size() + 2);
  }
  const auto columns = terminal_width() - label - 2;
  const double scale = static_cast<double>(columns) / std::max(batch.step.step_ms, 1e-9);
  for (auto& [device, line] : lines) line.marks.assign(columns, '.');
  for (const auto& event : batch.step.events) {
    const auto line = lines.find(event.device);
    const char mark = letter(batch.iteration.actions[event.device.index()][at(event.index)].kind);
    if (line == lines.end() || mark == '.' || event.end_ms <= event.begin_ms) continue;
    const auto begin = static_cast<std::size_t>(event.begin_ms * scale);
    const auto end = std::max(begin + 1, static_cast<std::size_t>(event.end_ms * scale));
    for (std::size_t i = begin; i < std::min(end, columns); ++i) line->second.marks[i] = mark;
  }
  std::string text;
  for (const auto& [device, line] : lines) text += padded(line.name, label) + line.marks + "\n";
  if (left > 0) text += "... and " + std::to_string(left) + " more\n";
  return text;
}

void print_warnings(const std::vector<std::string>& warnings) {
  constexpr std::size_t kIndent = 9;
  for (const auto& warning : warnings)
    std::cout << "warning: " << wrapped(warning, kIndent) << '\n';
}

void print_timeline(const std::string& what, const scheduler::AutoLayout& layout,
                    const PredictedBatch& batch) {
  std::cout << '\n'
            << what << ", " << time_text(batch.step.step_ms) << '\n'
            << "(F forward, B backward, W weight gradients, r reduction, o optimizer)\n"
            << timeline_text(layout, batch);
}

namespace {

/// `predicted step 101 ms (98.2 ms to 112 ms over the batches tried), bubble 39 %, 1 pipeline`.
std::string headline(const PlannedStep& planned) {
  const auto& layout = planned.layout;
  std::string text = "predicted step " + time_text(layout.predicted.step_ms);
  const auto least = time_text(planned.least_ms), most = time_text(planned.most_ms);
  if (least != most) text += " (other batches " + least + " to " + most + ")";
  return text + ", bubble " + percent(layout.predicted.bubble) + ", " + copies_text(layout.plan);
}

void print_reasons(const std::vector<scheduler::LayoutReason>& reasons) {
  std::cout << "\nwhy:\n";
  std::size_t width = 0;
  for (const auto& reason : reasons) width = std::max(width, reason.choice.size());
  for (const auto& reason : reasons)
    std::cout << "  " << padded(reason.choice, width) << "  " << wrapped(reason.why, width + 4)
              << '\n';
}

}  // namespace

void print_layout(const Planning& planning, const PlannedStep& planned,
                  const PlanningNotes& notes) {
  std::cout << wrapped(cluster_text(planning), 2) << '\n'
            << corrections_lines(planning.corrected) << wrapped(headline(planned), 2) << "\n\n";
  print_stages(planning, planned.layout);
  print_host_memory(planned.layout);
  print_checkpoint_copy(planning, planned.layout);
  print_standbys(planning, planned.layout);
  print_phases(planning, planned);
  print_boundaries(planned);
  print_reasons(planned.layout.reasons);
  print_warnings(warnings_of(planning, notes));
  for (const auto& suggestion : notes.suggestions)
    std::cout << "suggestion: " << wrapped(suggestion.text, 12) << '\n';
  print_templates(notes);
  print_timeline("one step", planned.layout, planned.batch);
}

}  // namespace troupe::app
