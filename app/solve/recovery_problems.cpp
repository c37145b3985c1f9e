// What follows a loss or a join: new pipelines, and who copies which layer to whom.

#include <map>

#include "app/solve/planning_problems.hpp"
#include "scheduler/recovery/reconfigure.hpp"
#include "scheduler/state/copy_plan.hpp"

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

// {layer: [ranks]}; layers that `bytes` does not name are refused.
void read_ranks(Reader& in, const std::string& key, const std::map<std::string, std::size_t>& index,
                std::vector<scheduler::CopyItem>& items,
                std::vector<std::int64_t> scheduler::CopyItem::*ranks) {
  const Json& lists = in.object(key);
  if (!in.ok()) return;
  Reader reader(lists, "input." + key);
  for (const auto& [layer, list] : lists.items()) {
    const auto found = index.find(layer);
    if (found == index.end()) {
      reader.fail(layer, "`bytes` has no such layer", "give its size");
    } else {
      items[found->second].*ranks = reader.integers(layer, 0, kMostThings);
    }
  }
  in.absorb(reader);
}

std::vector<scheduler::CopyItem> read_items(Reader& in) {
  std::vector<scheduler::CopyItem> items;
  std::map<std::string, std::size_t> index;
  const Json& sizes = in.object("bytes");
  if (!in.ok()) return items;
  Reader reader(sizes, "input.bytes");
  for (const auto& entry : sizes.items()) {
    index[entry.key()] = items.size();
    items.push_back({entry.key(),
                     static_cast<std::int64_t>(reader.number(entry.key(), 0, kMostBytes)),
                     {},
                     {}});
  }
  in.absorb(reader);
  read_ranks(in, "holders", index, items, &scheduler::CopyItem::holders);
  read_ranks(in, "needs", index, items, &scheduler::CopyItem::needs);
  return items;
}

Result<Json> solve_copy_plan(const Json& input) {
  Reader in(input, "input");
  in.only({"bytes", "holders", "needs"});
  const auto items = read_items(in);
  if (!in.ok()) return in.error();
  return timed_json(
      [&] { return scheduler::plan_copies(items); },
      [&](const scheduler::CopyPlan& plan) {
        Json copies = Json::array();
        for (const auto& copy : plan.copies)
          copies.push_back({{"layer", items[static_cast<std::size_t>(copy.item)].name},
                            {"from", copy.from},
                            {"to", copy.to}});
        return Json{{"copies", std::move(copies)},
                    {"max_sent_bytes", plan.max_sent_bytes},
                    {"lower_bound_bytes", plan.lower_bound_bytes}};
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
           solve_reconfigure},
          {"copy-plan", "who copies which layer to whom, least load on the busiest sender",
           "{\"bytes\": {layer: bytes}, \"holders\": {layer: [ranks that have it]},\n"
           " \"needs\": {layer: [ranks that must have it]}}",
           solve_copy_plan}};
}

}  // namespace troupe::app
