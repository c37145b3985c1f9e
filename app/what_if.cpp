// `troupe whatif`: what losing or adding nodes would do to a job.

#include "scheduler/recovery/what_if.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <numeric>
#include <set>

#include "app/planning.hpp"
#include "app/planning_text.hpp"
#include "app/terminal.hpp"
#include "app/text_table.hpp"
#include "app/what_if_layout.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::app {

namespace {

using scheduler::PipelineChange;
using scheduler::RankList;

constexpr std::int64_t kJoinedMax = 100'000;

struct Options {
  PlanningArguments planning;
  std::vector<std::string> lose;
  std::int64_t join = 0;
};

Result<RankList> lost_nodes(const Options& options, std::int32_t nodes) {
  RankList lost;
  for (const auto& text : options.lose) {
    std::int64_t node = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), node);
    if (failed != std::errc{} || end != text.data() + text.size() || node < 0 || node >= nodes)
      return usage_error("--lose: there is no node '" + text + "'",
                         "name nodes of 0 to " + std::to_string(nodes - 1) + ", as --lose 0,2");
    if (std::find(lost.begin(), lost.end(), node) != lost.end())
      return usage_error("--lose names node " + text + " twice", "name it once");
    lost.push_back(node);
  }
  if (nodes > 0 && std::ssize(lost) == nodes && options.join == 0)
    return usage_error("--lose names " +
                           (nodes == 1 ? std::string("the only node")
                                       : "all " + std::to_string(nodes) + " nodes") +
                           ": none is left to go on",
                       "leave one out; after such a loss the job goes on from its last checkpoint");
  return lost;
}

std::string list_text(const RankList& nodes) {
  std::string text;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::size_t last = i;
    while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(nodes[i]);
    if (last > i + 1) text += "-" + std::to_string(nodes[last]);
    if (last == i + 1) text += "," + std::to_string(nodes[last]);
    i = last;
  }
  return text;
}

/// `merged: pipelines 0 and 2 were one node each`.
std::string change_text(const scheduler::PipelineOrigin& origin) {
  std::vector<std::string> sources;
  for (const auto source : origin.sources) sources.push_back(std::to_string(source));
  const std::string from = joined_by_and(sources);
  switch (origin.change) {
    case PipelineChange::kept: return "as pipeline " + from + " was";
    case PipelineChange::reinstantiated: return "what is left of pipeline " + from;
    case PipelineChange::borrowed: return "borrowed nodes: of pipelines " + from;
    case PipelineChange::merged: return "merged pipelines " + from;
    case PipelineChange::grown: return "pipeline " + from + " with joined nodes";
    case PipelineChange::created: return "new, of joined nodes";
  }
  return {};
}

Json pipelines_json(const scheduler::Configuration& configuration) {
  Json list = Json::array();
  for (std::size_t p = 0; p < configuration.pipelines.size(); ++p)
    list.push_back(
        {{"nodes", configuration.pipelines[p]}, {"microbatches", configuration.microbatches[p]}});
  return list;
}

Json side_json(const scheduler::Configuration& configuration, std::optional<double> step_ms) {
  Json json{{"iteration_ms", configuration.iteration_ms}};
  json["step_ms"] = step_ms ? Json(*step_ms) : Json(nullptr);
  json["pipelines"] = pipelines_json(configuration);
  return json;
}

Json to_json(const Planning& planning, const WhatIfAnswer& answer) {
  const auto& change = answer.change;
  Json json{{"lost", answer.lost}, {"joined", answer.request.joined}, {"spare", answer.spare}};
  json["costs"] = planning.costs;
  json["corrections"] = corrections_json(planning.corrected);
  json["layout"] = answer.from_templates ? "templates" : planning.by_hand ? "by hand" : "chosen";
  if (!answer.instead.empty()) json["instead"] = answer.instead;
  json["warnings"] = planning.warnings;
  json["step_ms_simulated"] = answer.step_before_ms && answer.step_after_ms;
  json["before"] = side_json(change.before, answer.step_before_ms);
  json["after"] = side_json(change.after, answer.step_after_ms);
  for (std::size_t p = 0; p < change.origins.size(); ++p) {
    json["after"]["pipelines"][p]["change"] = std::string(to_string(change.origins[p].change));
    json["after"]["pipelines"][p]["sources"] = change.origins[p].sources;
  }
  json["copies"] = Json::array();
  for (const auto& copy : change.copies.copies) {
    const auto layer = static_cast<std::size_t>(copy.item);
    json["copies"].push_back({{"layer", answer.request.layer_names[layer]},
                              {"from", copy.from},
                              {"to", copy.to},
                              {"bytes", answer.request.layer_bytes[layer]}});
  }
  json["max_sent_bytes"] = change.copies.max_sent_bytes;
  json["lower_bound_bytes"] = change.copies.lower_bound_bytes;
  json["copy_ms"] = answer.copy_ms;
  return json;
}

void print_pipelines(const WhatIfAnswer& answer) {
  const auto& [before, after, origins, copies] = answer.change;
  std::vector<std::vector<std::string>> rows{{"", "pipeline", "microbatches", "nodes", ""}};
  for (std::size_t p = 0; p < before.pipelines.size(); ++p)
    rows.push_back({p == 0 ? "before" : "", std::to_string(p),
                    std::to_string(before.microbatches[p]), list_text(before.pipelines[p]), ""});
  for (std::size_t p = 0; p < after.pipelines.size(); ++p)
    rows.push_back({p == 0 ? "after" : "", std::to_string(p), std::to_string(after.microbatches[p]),
                    list_text(after.pipelines[p]), change_text(origins[p])});
  print_table(rows, {0, 3, 4});
}

void print_copies(const WhatIfAnswer& answer) {
  constexpr std::size_t kShown = 20;
  const auto& request = answer.request;
  const auto& copies = answer.change.copies;
  if (copies.copies.empty()) {
    std::cout << "copies: none, every node has its layers already\n";
    return;
  }
  // Layers of one sender and receiver on one row.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::size_t>> rows;
  std::int64_t all = 0;
  for (const auto& copy : copies.copies) {
    rows[{copy.from, copy.to}].push_back(static_cast<std::size_t>(copy.item));
    all += request.layer_bytes[static_cast<std::size_t>(copy.item)];
  }
  std::cout << "copies: " << copies.copies.size() << " layers, "
            << size_text(static_cast<double>(all)) << "; the busiest sender sends "
            << size_text(static_cast<double>(copies.max_sent_bytes))
            << (copies.max_sent_bytes == copies.lower_bound_bytes
                    ? ", which no plan betters"
                    : ", at least " + size_text(static_cast<double>(copies.lower_bound_bytes)) +
                          " in any plan")
            << "; about " << time_text(answer.copy_ms) << " on the network\n";
  std::vector<std::vector<std::string>> table{{"from", "to", "size", "layers"}};
  for (const auto& [ends, layers] : rows) {
    if (table.size() > kShown) break;
    std::int64_t bytes = 0;
    for (const auto layer : layers) bytes += request.layer_bytes[layer];
    std::string names = request.layer_names[layers.front()];
    if (layers.size() > 1)
      names += (layers.size() == 2 ? ", " : " ... ") + request.layer_names[layers.back()] + " (" +
               std::to_string(layers.size()) + ")";
    table.push_back({std::to_string(ends.first), std::to_string(ends.second),
                     size_text(static_cast<double>(bytes)), names});
  }
  print_table(table, {3});
  if (rows.size() > kShown)
    std::cout << "  ... and " << rows.size() - kShown << " more; --json lists all\n";
}

void print(const Planning& planning, const WhatIfAnswer& answer) {
  const auto& [before, after, origins, copies] = answer.change;
  std::cout << cluster_text(planning) << '\n' << corrections_lines(planning.corrected);
  if (!answer.lost.empty()) std::cout << "lost: " << list_text(answer.lost) << '\n';
  if (!answer.request.joined.empty())
    std::cout << "joined: " << list_text(answer.request.joined)
              << (answer.spare.empty() ? "" : ", of them had no stage: " + list_text(answer.spare))
              << '\n';
  if (!answer.instead.empty()) std::cout << "note: " << wrapped(answer.instead, 6) << '\n';
  if (answer.from_templates)
    std::cout << "pipelines of this layout share nodes; shown is the job on pipeline templates\n";
  const bool simulated = answer.step_before_ms && answer.step_after_ms;
  const double was = simulated ? *answer.step_before_ms : before.iteration_ms;
  const double is = simulated ? *answer.step_after_ms : after.iteration_ms;
  std::cout << "step: " << time_text(was) << " before, " << time_text(is) << " after ("
            << (is >= was ? "+" : "-") << percent(std::abs(is / was - 1))
            << (simulated ? ", simulated)\n\n"
                          : ", not simulated: stages of several devices; the sum of a "
                            "pipeline's stages + (microbatches - 1) x its slowest)\n\n");
  print_pipelines(answer);
  std::cout << '\n';
  print_copies(answer);
  print_warnings(planning.warnings);
}

int what_if(const Options& options) {
  if (options.lose.empty() && options.join == 0)
    return report(usage_error("nothing is lost and nothing joins", "add --lose 1 or --join 2"));
  if (options.join < 0 || options.join > kJoinedMax)
    return report(usage_error("--join is no number of nodes from 0 to " + with_commas(kJoinedMax),
                              "--join 2"));
  const auto opened = open_planning(options.planning);
  if (!opened.ok()) return report(opened.error());
  const Planning& planning = *opened.value();
  const auto lost = lost_nodes(options, planning.request.cluster.nodes);
  if (!lost.ok()) return report(lost.error());
  RankList joined(static_cast<std::size_t>(options.join));
  std::iota(joined.begin(), joined.end(), planning.request.cluster.nodes);
  const auto answer = answer_what_if(planning, lost.value(), joined);
  if (!answer.ok()) return report(answer.error());
  if (options.planning.json)
    std::cout << to_json(planning, answer.value()).dump(2) << '\n';
  else
    print(planning, answer.value());
  return kDone;
}

}  // namespace

void add_what_if(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("whatif", "Say what losing or adding nodes would do",
                               [options] { return what_if(*options); });
  options->planning.add_to(*command);
  command->add_option("--lose", options->lose, "Nodes that fail: 6,8")
      ->delimiter(',')
      ->type_name("NODES")
      ->allow_extra_args(false);
  command->add_option("--join", options->join, "How many nodes join")->type_name("COUNT");
}

}  // namespace troupe::app
