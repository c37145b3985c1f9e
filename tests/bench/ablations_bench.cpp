// OrchMLLM's ablations (section 8) by the planner and the simulator, on its largest cluster and on
// that of its microbenchmarks. What is in print stands behind `in print`.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tests/bench/ablation_ranks.hpp"
#include "tests/bench/report.hpp"

using namespace troupe;
using namespace troupe::bench;
using Json = nlohmann::json;

namespace {

template <class T>
T needed(Result<T> made) {
  if (made.ok()) return std::move(made).value();
  std::cerr << to_string(made.error()) << '\n';
  std::exit(EXIT_FAILURE);
}

/// One model on one cluster.
struct Cluster {
  std::string model;
  std::size_t ranks = 0, mini_batch = 0;
  std::uint64_t draws = 1;

  std::string size() const {
    return model + ", " + std::to_string(ranks) + " ranks x " + std::to_string(mini_batch) +
           " samples";
  }
};

/// Of each ablation the mean over draws.
std::vector<AblatedStep> mean_steps(const PaperCosts& costs, const Json& table,
                                    const Cluster& cluster, const std::vector<Ablation>& asked) {
  std::vector<AblatedStep> means(asked.size());
  const double part = 1 / static_cast<double>(cluster.draws);
  for (std::uint64_t seed = 0; seed < cluster.draws; ++seed) {
    const auto ranks =
        needed(AblationRanks::create(costs, table, table.at("models").at(cluster.model),
                                     cluster.ranks, cluster.mini_batch, seed));
    for (std::size_t a = 0; a < asked.size(); ++a) {
      const auto step = needed(ranks.step(asked[a]));
      for (const auto of : {&AblatedStep::alone, &AblatedStep::in_groups}) {
        (means[a].*of).step_ms += part * (step.*of).step_ms;
        (means[a].*of).utilization += part * (step.*of).utilization;
        (means[a].*of).forward_ms += part * (step.*of).forward_ms;
      }
      means[a].vision_far_rows += part * step.vision_far_rows;
      means[a].audio_far_rows += part * step.audio_far_rows;
    }
  }
  return means;
}

void print(const std::string& measure, double value, const char* unit, const Cluster& cluster,
           const char* better = "higher") {
  report(measure, value, unit, {{"size", cluster.size()}, {"better", better}});
}

/// `43.6 to 72.2`.
std::string range(const Json& published, double factor = 1) {
  const auto text = [&](std::size_t i) {
    std::string digits = std::to_string(factor * published.at(i).get<double>());
    return digits.substr(0, digits.find('.') + 2);
  };
  return text(0) + " to " + text(1);
}

/// How ranks wait, and how that is called.
struct Waits {
  StepOfRanks AblatedStep::*of;
  const char* name;
};
constexpr Waits kWaits[]{{&AblatedStep::alone, "ranks wait for rows: "},
                         {&AblatedStep::in_groups, "ranks wait for their group, too: "}};

/// These ablations on one cluster; returns the last one's step, which has all phases balanced.
AblatedStep print_ablations(const PaperCosts& costs, const Json& table, const Cluster& cluster,
                            const std::vector<Ablation>& asked) {
  const auto steps = mean_steps(costs, table, cluster, asked);
  const AblatedStep& whole = steps.back();
  for (const auto& [of, name] : kWaits)
    for (std::size_t a = 0; a < asked.size(); ++a) {
      print(name + ("utilization, " + asked[a].name), (steps[a].*of).utilization, "%", cluster);
      print(name + ("step over that of all phases, " + asked[a].name),
            (steps[a].*of).step_ms / (whole.*of).step_ms, "x", cluster, "lower");
    }
  const std::string less = "rows between nodes that node-wise placement saves (in print " +
                           range(table.at("published").at("node_wise_reduction"), 100) + " %), ";
  const auto saved = [](double on, double off) { return off > 0 ? 100 * (1 - on / off) : 0; };
  for (std::size_t a = 0; a < asked.size(); ++a) {
    if (asked[a].node_wise) continue;
    print(less + "vision", saved(whole.vision_far_rows, steps[a].vision_far_rows), "%", cluster);
    print(less + "audio", saved(whole.audio_far_rows, steps[a].audio_far_rows), "%", cluster);
  }
  return whole;
}

/// All phases balanced beside print, and beside none balanced, with the mini-batch that print has
/// for that.
void print_gain(const PaperCosts& costs, const Json& table, Cluster cluster,
                const AblatedStep& balanced) {
  const Json& published = table.at("published");
  const auto in_print = published.at("mfu_84b").get<double>();
  cluster.mini_batch =
      table.at("models").at(cluster.model).at("mini_batch").at("unbalanced").get<std::size_t>();
  cluster.draws = table.at("draws").at("unbalanced").get<std::uint64_t>();
  const auto none = mean_steps(costs, table, cluster, {ablations().front()}).front();
  for (const auto& [of, name] : kWaits) {
    if (cluster.model == "mllm-84b")
      print(name + std::string("utilization over that in print, all"),
            (balanced.*of).utilization / in_print, "x", cluster);
    print(name + ("utilization of all phases balanced over none (in print " +
                  range(published.at("mfu_gain")) + " x)"),
          (balanced.*of).utilization / (none.*of).utilization, "x", cluster);
  }
}

/// The LLM balanced alone, with the mini-batch that print has for that, beside all phases on the
/// whole cluster.
void print_llm_alone(const PaperCosts& costs, const Json& table, Cluster cluster,
                     const AblatedStep& balanced) {
  const Json& mini_batch = table.at("models").at(cluster.model).at("mini_batch");
  if (!mini_batch.contains("llm_alone")) return;
  const Json& published = table.at("published");
  const double in_print =
      published.at("llm_alone_mfu_84b").get<double>() / published.at("mfu_84b").get<double>();
  cluster.mini_batch = mini_batch.at("llm_alone").get<std::size_t>();
  auto asked = ablations();
  std::erase_if(asked, [](const Ablation& one) { return one.name != "LLM alone"; });
  const auto alone = mean_steps(costs, table, cluster, asked).front();
  for (const auto& [of, name] : kWaits)
    print(name + ("utilization of the LLM balanced alone over all phases (in print " +
                  std::to_string(in_print).substr(0, 4) + " x)"),
          (alone.*of).utilization / (balanced.*of).utilization, "x", cluster);
}

/// The forward pass on every cluster of Table 2, all phases balanced and sounds padded as there.
void print_forwards(const PaperCosts& costs, const Json& table) {
  const Json& asked = table.at("overhead");
  const Json& in_print = table.at("published").at("forward_s");
  for (const Json& gpus : asked.at("gpus")) {
    const Cluster cluster{asked.at("model").get<std::string>(), gpus.get<std::size_t>(),
                          asked.at("mini_batch").get<std::size_t>(), 1};
    const auto step = mean_steps(costs, table, cluster, {padded_ablations().back()}).front();
    for (const auto& [of, name] : kWaits)
      print(name + ("forward, sounds padded (in print " + in_print.at(gpus.dump()).dump() + " s)"),
            (step.*of).forward_ms / 1000, "s", cluster, "lower");
  }
}

}  // namespace

int main() {
  std::ifstream file("experiments/orchmllm/section-8.json");
  const Json table = Json::parse(file);
  const auto draws = [&](const char* key) {
    return table.at("draws").at(key).get<std::uint64_t>();
  };
  for (const auto& [name, model] : table.at("models").items()) {
    const auto costs = needed(paper_costs(name, table));
    const Json& mini_batch = model.at("mini_batch");
    const Cluster whole{name, table.at("clusters").at("whole").get<std::size_t>(),
                        mini_batch.at("orchmllm").get<std::size_t>(), draws("whole")};
    const Cluster part{name, table.at("clusters").at("ablations").get<std::size_t>(),
                       mini_batch.at("ablations").get<std::size_t>(), draws("ablations")};
    const auto balanced = print_ablations(costs, table, whole, ablations());
    print_gain(costs, table, whole, balanced);
    print_ablations(costs, table, part, ablations());
    print_ablations(costs, table, part, padded_ablations());
    print_llm_alone(costs, table, part, balanced);
    if (name == table.at("overhead").at("model").get<std::string>()) print_forwards(costs, table);
  }
}
