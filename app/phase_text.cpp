#include "app/phase_text.hpp"

#include <cstdio>

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

}  // namespace troupe::app
