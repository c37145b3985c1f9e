#include "app/phase_text.hpp"

#include <cstdio>
#include <iostream>
#include <utility>

#include "app/exchange_text.hpp"
#include "app/planning_text.hpp"
#include "app/terminal.hpp"
#include "engine/iteration/phase_exchange.hpp"

namespace troupe::app {

std::string ratio_text(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

void add_figures(const engine::PhaseBalance& balance, const engine::FarRows& far, Json& json) {
  json["imbalance_drawn"] = balance.drawn;
  json["imbalance_planned"] = balance.planned;
  json["imbalance_bound"] = balance.bound;
  json["rows_between_nodes"] = far.planned;
  json["rows_between_nodes_bound"] = far.bound;
}

Json exchange_json(const ParallelPlan& plan, const std::string& asked,
                   const engine::ExchangeCount& count) {
  if (!engine::can_exchange(plan)) return nullptr;
  Json refused;
  if (count.refused) refused = count.refused->message;
  return {{"asked", asked},
          {"steps", count.steps},
          {"exchanged", count.exchanged},
          {"refused", std::move(refused)}};
}

std::string evenness_text(const ParallelPlan& plan, const std::vector<engine::PhaseBalance>& phases,
                          const std::vector<engine::FarRows>& far_rows) {
  std::string text;
  for (std::size_t g = 0; g < phases.size(); ++g) {
    if (engine::replicas_of(plan, ModuleGroupId{g}).size() < 2) continue;
    text += (text.empty() ? "largest over mean work: " : "; ") + plan.module_groups[g].name + " " +
            ratio_text(phases[g].planned) + " (as drawn " + ratio_text(phases[g].drawn) +
            ", at best " + ratio_text(phases[g].bound) + ")";
    if (g + 1 < phases.size())
      text += ", " + percent(far_rows[g].planned) + " of its rows leave their node (at least " +
              percent(far_rows[g].bound) + ")";
  }
  return text;
}

namespace {

engine::ExchangeCount count_of(const PlannedStep& planned) {
  engine::ExchangeCount count;
  count.add(planned.batch.prediction);
  return count;
}

}  // namespace

void print_phases(const Planning& planning, const PlannedStep& planned) {
  const auto& prediction = planned.batch.prediction;
  const auto& plan = planned.layout.plan;
  for (const auto& text :
       {evenness_text(plan, prediction.phases, prediction.far_rows),
        exchange_text(plan, planning.setup.job.balancer.exchange, count_of(planned))})
    if (!text.empty()) std::cout << wrapped(text, 2) << '\n';
}

void add_phases(const Planning& planning, const PlannedStep& planned, Json& json) {
  const auto& prediction = planned.batch.prediction;
  const auto& plan = planned.layout.plan;
  json["phases"] = Json::array();
  for (std::size_t g = 0; g < prediction.phases.size(); ++g) {
    Json phase{{"phase", plan.module_groups[g].name}};
    add_figures(prediction.phases[g], prediction.far_rows[g], phase);
    if (prediction.exchanges(g)) phase["exchanged"] = true;
    json["phases"].push_back(std::move(phase));
  }
  json["exchange"] = exchange_json(plan, planning.setup.job.balancer.exchange, count_of(planned));
}

}  // namespace troupe::app
