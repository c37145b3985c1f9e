#include "scheduler/recovery/first_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/layout/encoder_placement.hpp"
#include "scheduler/layout/layout_request.hpp"
#include "scheduler/recovery/recovery_layouts.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::scheduler {

namespace {

/// Pipelines of templates, on all nodes.
struct Templated {
  HandLayout layout;
  ParallelPlan plan;
  std::string words;  ///< `1 pipeline of 1 node, 2 of 3 nodes`.
};

bool may_begin_with_templates(const AutoLayoutRequest& request) {
  const bool is_free = std::all_of(request.pins.begin(), request.pins.end(), [](const auto& entry) {
    const ModulePins& pins = entry.second;
    return !pins.tp && !pins.cp && !pins.pp && !pins.dp;
  });
  return request.fault_tolerance > 0 && !request.planned_only && is_free;
}

std::string counted(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string words_of(const std::map<std::size_t, std::size_t>& count_by_nodes) {
  std::string text;
  for (const auto& [nodes, count] : count_by_nodes)
    text += (text.empty() ? counted(count, "pipeline") : ", " + std::to_string(count)) + " of " +
            counted(nodes, "node");
  return text;
}

/// Errors: infeasible: no combination of templates works on all nodes; as `layout_templates` and
/// `place_by_hand`.
Result<Templated> from_templates(const AutoLayoutRequest& request, const ParallelPlan& searched) {
  const ModelGraph& model = request.model->graph();
  std::int32_t llm_replicas = 0;  // Layers weigh what a batch makes them weigh that so many share.
  for (std::size_t r = 0; r < searched.replicas.size(); ++r)
    llm_replicas += searched.is_llm(ReplicaId{r}) ? 1 : 0;
  auto set = layout_templates(request, model, llm_replicas, request.cluster.nodes, 0);
  if (!set.ok()) return std::move(set).error();
  RecoveryModel recovery;
  recovery.templates = std::move(set).value();
  recovery.fault_tolerance = request.fault_tolerance;
  recovery.global_batch = request.global_batch;
  RankList nodes(static_cast<std::size_t>(request.cluster.nodes));
  std::iota(nodes.begin(), nodes.end(), std::int64_t{0});
  const auto best = combined_layout(recovery, nodes);
  if (!best.ok()) return best.error();
  if (!best.value().idle.empty())
    return Error{Errc::infeasible,
                 counted(best.value().idle.size(), "node") + " would have no work",
                 {},
                 {}};
  Templated made;
  std::map<std::size_t, std::size_t> count_by_nodes;
  const auto& templates = recovery.templates.templates;
  for (const RankList& ranks : best.value().pipelines) {
    const std::vector<std::int32_t> own(ranks.begin(), ranks.end());
    const auto cut = std::find_if(templates.begin(), templates.end(), [&](const auto& one) {
      return static_cast<std::size_t>(one.node_count) == own.size();
    });
    auto stages = stages_of_template(model, layers_of(model), *cut, own, request.stage_kinds);
    if (!stages)
      return Error{Errc::infeasible, "a stage of them would take several devices", {}, {}};
    made.layout.pipelines.push_back(*std::move(stages));
    ++count_by_nodes[own.size()];
  }
  auto placed = place_by_hand(model, made.layout, request.cluster, IdleDevices::refused,
                              {request.fault_tolerance, request.prediction.dtype});
  if (!placed.ok()) return std::move(placed).error();
  made.plan = std::move(placed).value();
  made.words = words_of(count_by_nodes);
  return made;
}

/// A step as the layouts of this request are compared by. Errors: infeasible where memory does not
/// do.
Result<PredictedStep> step_of(const AutoLayoutRequest& request, const ParallelPlan& plan) {
  auto step = request.judge ? request.judge(plan) : predict_step(plan, request);
  if (!step.ok()) return step;
  const double memory = static_cast<double>(request.device_memory.count());
  const auto& peaks = step.value().peak_memory_bytes;
  if (memory > 0 &&
      std::any_of(peaks.begin(), peaks.end(), [&](double peak) { return peak > memory; }))
    return Error{Errc::infeasible, "they take more memory than a device has", {}, {}};
  return step;
}

/// `+1.3 %`.
std::string tenths(double share) {
  const auto permille = static_cast<std::int64_t>(1000 * std::abs(share) + 0.5);
  return (share < 0 ? "-" : "+") + std::to_string(permille / 10) + "." +
         std::to_string(permille % 10) + " %";
}

void take(Templated made, PredictedStep step, AutoLayout& chosen) {
  chosen.layout = std::move(made.layout);
  chosen.plan = std::move(made.plan);
  chosen.placed_ms = step.step_ms;
  chosen.predicted = std::move(step);
  chosen.one_number_ms.reset();
  if (chosen.other_placement && encoder_placement(chosen.plan) == chosen.other_placement->placement)
    chosen.other_placement.reset();
}

/// Lets spare nodes stand by, and says what they keep and what it costs; where that does not fit,
/// or there is no step on paper with it, they keep nothing.
void stand_by(const AutoLayoutRequest& request, AutoLayout& chosen) {
  const auto say = [&](const std::string& what, const std::string& why) {
    chosen.reasons.push_back(
        {counted(static_cast<std::size_t>(request.spares), "spare node"), what + ": " + why});
  };
  const auto memory = static_cast<double>(request.device_memory.count());
  const Tolerance tolerance{request.fault_tolerance, request.prediction.dtype, request.spares,
                            Bytes{static_cast<std::int64_t>(kSpareShare * memory)}};
  const ClusterShape all{request.cluster.nodes + request.spares, request.cluster.devices_per_node};
  auto made =
      place_by_hand(request.model->graph(), chosen.layout, all, IdleDevices::left_out, tolerance);
  if (!made.ok()) return say("without state", made.error().message);
  if (request.fits_spares)
    if (auto fits = request.fits_spares(made.value()); !fits.ok())
      return say("without state", fits.error().message);
  const auto before =
      chosen.judged > 0 ? Result<PredictedStep>(chosen.predicted) : step_of(request, chosen.plan);
  auto after = step_of(request, made.value());
  if (!before.ok() || !after.ok())
    return say("without state", (before.ok() ? after : before).error().message);
  const auto bytes = standby_state_bytes(made.value(), request.prediction);
  say("standby holders keep " + byte_text(std::accumulate(bytes.begin(), bytes.end(), 0.0)),
      "time per step " + tenths(after.value().step_ms / before.value().step_ms - 1));
  chosen.plan = std::move(made).value();
  chosen.predicted = std::move(after).value();
}

/// `first_layout` without what spare nodes keep.
Result<AutoLayout> layout_of_workers(const AutoLayoutRequest& request) {
  auto searched = auto_layout(request);
  if (!searched.ok() || !may_begin_with_templates(request)) return searched;
  AutoLayout& chosen = searched.value();
  const auto say = [&](const std::string& choice, const std::string& why) {
    chosen.reasons.push_back({choice, why});
  };
  auto made = from_templates(request, chosen.plan);
  if (!made.ok()) {
    say("not from templates", "losses and joins go on from what survives: " + made.error().message);
    return searched;
  }
  const std::string words = made.value().words;
  const auto step = step_of(request, made.value().plan);
  const auto best =
      chosen.judged > 0 ? Result<PredictedStep>(chosen.predicted) : step_of(request, chosen.plan);
  if (!step.ok() || !best.ok()) {
    say("not from templates", words + ": " + (step.ok() ? best : step).error().message);
    return searched;
  }
  const double longer = step.value().step_ms / best.value().step_ms - 1;
  if (longer > kWorthTemplates) {
    say("not from templates", "time per step with " + words + ": " + tenths(longer));
    return searched;
  }
  const bool is_other = made.value().plan != chosen.plan;
  if (is_other) {
    chosen.reasons.clear();  // They speak of the other layout.
    take(std::move(made).value(), step.value(), chosen);
  }
  say("from templates",
      words + ", as losses and joins make them; " +
          (is_other ? "time per step against the best layout found: " + tenths(longer)
                    : std::string("the best layout found is the same")));
  return searched;
}

}  // namespace

Result<AutoLayout> first_layout(const AutoLayoutRequest& request) {
  auto chosen = layout_of_workers(request);
  if (chosen.ok() && request.spares > 0) stand_by(request, chosen.value());
  return chosen;
}

}  // namespace troupe::scheduler
