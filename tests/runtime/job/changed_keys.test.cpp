#include "runtime/job/changed_keys.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "tests/runtime/job/job_files.hpp"

namespace troupe::job {
namespace {

Job job_of(const std::string& more) {
  const auto reading = parse_job(
      R"([modules.llm]
kind = "llm"
config = { num_hidden_layers = 2, hidden_size = 16, intermediate_size = 24, num_attention_heads = 2 }
[[data.sources]]
json = "samples.json"
[job]
name = "x"
)" + more,
      "job.toml", {}, Paths::of_another_machine);
  for (const auto& problem : reading.problems) UNSCOPED_INFO(to_string(problem));
  REQUIRE(reading.ok());
  return reading.loaded.job;
}

TEST_CASE("changed keys are told with both values, in order, others not at all", "[job]") {
  const Job before = job_of(R"([train]
steps = 20
[cluster]
local_nodes = 2
[[parallel.pipelines]]
stages = [{ node = 0, llm = [0, 2] }, { node = 1, llm = [2, 4] }])");
  CHECK(changed_keys(before, before).empty());
  const Job now = job_of(R"([train]
epochs = 3
[cluster]
local_nodes = 1
[[parallel.pipelines]]
stages = [{ node = 0, llm = "all" }])");
  const auto changes = changed_keys(before, now);
  std::vector<std::string> keys;
  for (const auto& change : changes) keys.push_back(change.key);
  CHECK((keys == std::vector<std::string>{"cluster.local_nodes", "cluster.nodes",
                                          "parallel.pipelines[0].stages", "train.epochs",
                                          "train.steps"}));
  const std::string text = changes_text(changes);
  CHECK(text ==
        "cluster.local_nodes 2 -> 1, cluster.nodes 2 -> 1, parallel.pipelines[0].stages, "
        "train.epochs (none) -> 3, train.steps 20 -> (none)");
}

TEST_CASE("a second table of the same name is another key", "[job]") {
  const std::string first = R"([train]
steps = 2
[cluster]
local_nodes = 3
[[parallel.pipelines]]
stages = [{ node = 0, llm = "all" }]
)";
  const std::string second = "[[parallel.pipelines]]\n";
  const auto changes = changed_keys(
      job_of(first + second + "stages = [{ node = 1, llm = [0, 2] }, { node = 2, llm = [2, 4] }]"),
      job_of(first + second + "stages = [{ node = 1, llm = [0, 1] }, { node = 2, llm = [1, 4] }]"));
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].key == "parallel.pipelines[1].stages");
}

}  // namespace
}  // namespace troupe::job
