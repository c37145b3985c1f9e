#include "app/boundary_text.hpp"

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <utility>

#include "app/terminal.hpp"

namespace troupe::app {

namespace {

double time_by(const BoundaryRoute& boundary, Route route) {
  return boundary.predicted_ms[static_cast<std::size_t>(route)];
}

/// `predicted 0.12 ms for the rows of this step; leader the same, gather-scatter 0.3 ms`.
std::string why(const BoundaryRoute& boundary) {
  const double own_ms = time_by(boundary, boundary.route);
  std::string text = boundary.pinned ? "pinned by scheduler.boundary; " : "";
  if (std::all_of(boundary.predicted_ms.begin(), boundary.predicted_ms.end(),
                  [](double ms) { return ms == 0; }))
    return text + "the profile knows no speeds of links";
  text += "predicted " + time_text(own_ms) + " for the rows of this step";
  const char* before = "; ";
  for (std::size_t r = 0; r < kRouteNames.size(); ++r) {
    const auto route = static_cast<Route>(r);
    if (route == boundary.route) continue;
    const double ms = time_by(boundary, route);
    text +=
        before + std::string(to_string(route)) + " " + (ms == own_ms ? "the same" : time_text(ms));
    before = ", ";
  }
  return text;
}

/// Where all routes take the same, as where rows stay on their device, there is nothing to say.
bool is_of_interest(const BoundaryRoute& boundary) {
  const auto& ms = boundary.predicted_ms;
  return boundary.pinned ||
         std::adjacent_find(ms.begin(), ms.end(), std::not_equal_to()) != ms.end();
}

}  // namespace

void print_boundaries(const PlannedStep& planned) {
  const ParallelPlan& plan = planned.layout.plan;
  bool is_first = true;
  for (const BoundaryRoute& boundary : planned.batch.iteration.boundaries) {
    if (!is_of_interest(boundary)) continue;
    if (std::exchange(is_first, false)) std::cout << "\nbetween modules:\n";
    const std::string what = plan.model.at(boundary.module).name + " to " +
                             plan.module_groups[boundary.group.index()].name + "  ";
    std::cout << "  " << what
              << wrapped(std::string(to_string(boundary.route)) + ": " + why(boundary),
                         what.size() + 2)
              << '\n';
  }
}

Json boundaries_json(const PlannedStep& planned) {
  const ParallelPlan& plan = planned.layout.plan;
  Json list = Json::array();
  for (const BoundaryRoute& boundary : planned.batch.iteration.boundaries) {
    Json times;
    for (std::size_t r = 0; r < kRouteNames.size(); ++r)
      times[std::string(kRouteNames[r])] = boundary.predicted_ms[r];
    list.push_back({{"module", plan.model.at(boundary.module).name},
                    {"to", plan.module_groups[boundary.group.index()].name},
                    {"route", std::string(to_string(boundary.route))},
                    {"pinned", boundary.pinned},
                    {"predicted_ms", std::move(times)},
                    {"why", why(boundary)}});
  }
  return list;
}

}  // namespace troupe::app
