#include "tests/torch_catch.hpp"

#include "engine/job_setup.hpp"

#include <string>
#include <variant>
#include <vector>

#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("all that keeps a job from being prepared is told at once", "[engine][errors]") {
  job::Job job = tiny_job();
  CHECK(setup_problems(job).empty());

  job.data.max_pixels = 1;
  for (auto& module : job.modules)
    if (auto* llm = std::get_if<LlmConfig>(&module.config)) {
      llm->vocab_size = 10;
      llm->head_dim = 7;
    }
  std::vector<std::string> wheres;
  for (const auto& problem : setup_problems(job)) wheres.push_back(problem.where);
  // In order: the model alone, the model and its data, the data alone.
  const std::vector<std::string> expected{"modules.llm.config.head_dim",
                                          "modules.llm.config.vocab_size", "data.max_pixels"};
  CHECK((wheres == expected));

  const auto setup = prepare(job);
  REQUIRE_FALSE(setup.ok());
  CHECK(setup.error().where == expected.front());
}

TEST_CASE("a size that breaks the model and its data is told once", "[engine][errors]") {
  job::Job job = tiny_job();
  for (auto& module : job.modules)
    if (auto* vision = std::get_if<VisionConfig>(&module.config)) vision->patch_size = 0;
  CHECK(setup_problems(job).size() == 1);
}

TEST_CASE("a second encoder of a kind is refused: a sample's media go to one", "[engine][errors]") {
  job::Job job = tiny_job();
  auto second = job.modules.front();
  REQUIRE(std::holds_alternative<VisionConfig>(second.config));
  second.name = "second";
  job.modules.push_back(second);
  const auto problems = setup_problems(job);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].where == "modules.second");
}

}  // namespace
}  // namespace troupe::engine
