// What follows a loss or a join: new pipelines, and who copies which layer to whom.

#include "app/solve/planning_problems.hpp"
#include "scheduler/reconfigure.hpp"

namespace troupe::app {

namespace {

// An array of arrays of ranks.
std::vector<scheduler::RankList> read_pipelines(Reader& in) {
  std::vector<scheduler::RankList> pipelines;
  const Json& rows = in.array("pipelines");
  for (std::size_t i = 0; i < rows.size() && in.ok(); ++i) {
    const Json wrapped{{"ranks", rows[i]}};
    Reader row(wrapped, "input.pipelines[" + std::to_string(i) + "]");
    pipelines.push_back(row.integers("ranks", 0, kMostThings));
    in.absorb(row);
  }
  return pipelines;
}

Result<Json> solve_reconfigure(const Json& input) {
  Reader in(input, "input");
  in.only({"pipelines", "minimum", "ranks_per_node", "fault_tolerance", "lost", "joined"});
  scheduler::ReconfigureRequest request;
  request.pipelines = read_pipelines(in);
  request.minimum = in.integer("minimum", 1, kMostThings);
  request.ranks_per_node = in.integer_or("ranks_per_node", 1, 1, 1 << 20);
  request.fault_tolerance = in.integer_or("fault_tolerance", 0, 0, kMostThings);
  if (in.has("lost")) request.lost = in.integers("lost", 0, kMostThings);
  if (in.has("joined")) request.joined = in.integers("joined", 0, kMostThings);
  if (!in.ok()) return in.error();
  return timed_json([&] { return scheduler::reconfigure(request); },
                    [](const std::vector<scheduler::RankList>& pipelines) {
                      return Json{{"pipelines", pipelines}};
                    });
}

const char* const kReconfigureSchema = R"({
  "pipelines": [[ranks]...], disjoint, whole nodes,
  "minimum": ranks of the smallest template,
  "ranks_per_node"?: integer >= 1 (default 1), "fault_tolerance"?: f, integer >= 0 (default 0),
  "lost"?: [ranks], "joined"?: [ranks]
})";

}  // namespace

std::vector<Problem> recovery_problems() {
  return {{"reconfigure", "pipelines after losses and joins (Oobleck 2.5.1)", kReconfigureSchema,
           solve_reconfigure}};
}

}  // namespace troupe::app
