#include "runtime/job/read_layout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/runtime/job/job_files.hpp"

namespace troupe::job {
namespace {

using Catch::Matchers::ContainsSubstring;

/// A vision-language model on two nodes of one device each: vision and llm have 6 layers.
Job small_job() {
  const JobFolder folder;
  const auto reading = read_job(folder.write("job.toml", kLayoutJob), {});
  REQUIRE(reading.ok());
  return reading.loaded.job;
}

/// The error as a user reads it; empty: there is none.
std::string refusal(const std::string& text, const Job& job = small_job()) {
  const auto read = read_layout(text, "other.toml", job);
  return read.ok() ? "" : to_string(read.error());
}

const std::string kCut = R"([[parallel.pipelines]]
stages = [{node = 1, vision = "all", llm = [0, 2]}, {node = 0, llm = [2, 6]}]
)";

const std::string kGroups = R"([parallel]
mode = "manual"

[[parallel.replicas]]
modules = ["vision"]
stages = [{node = 0, vision = "all"}]

[[parallel.replicas]]
modules = ["llm"]
stages = [{node = 1, llm = "all"}]
)";

TEST_CASE("a layout file holds either form of a layout by hand", "[job]") {
  const auto cut = read_layout(kCut, "other.toml", small_job());
  REQUIRE(cut.ok());
  const HandLayout expected{
      {{{1, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}}, {0, 0, {{"llm", LayerRange{2, 6}}}}}}};
  CHECK(cut.value().layout == expected);
  CHECK(cut.value().origins.at("parallel.pipelines[0].stages[1].node").where == "other.toml:2");

  const auto groups = read_layout(kGroups, "other.toml", small_job());
  REQUIRE(groups.ok());
  REQUIRE(groups.value().layout.replicas.size() == 2);
  CHECK(groups.value().layout.replicas[1].modules == std::vector<std::string>{"llm"});
}

TEST_CASE("a layout file may leave devices without work", "[job]") {
  CHECK(refusal("[[parallel.pipelines]]\nstages = [{node = 1, vision = \"all\", llm = \"all\"}]\n")
            .empty());
}

TEST_CASE("a layout file holds nothing but a layout by hand", "[job][errors]") {
  CHECK_THAT(refusal(kCut + "[train]\nsteps = 3\n"),
             ContainsSubstring("other.toml:3: train: a layout file holds [parallel] alone") &&
                 ContainsSubstring("fix: remove it"));
  CHECK_THAT(refusal("extends = \"job.toml\"\n" + kCut),
             ContainsSubstring("other.toml:1: extends: a layout file holds"));
  CHECK_THAT(refusal("[parallel]\nmode = \"auto\"\n" + kCut),
             ContainsSubstring("other.toml:2: parallel.mode: ") && ContainsSubstring("by hand"));
  CHECK_THAT(refusal("[parallel.llm]\ntp = 2\n" + kCut),
             ContainsSubstring("other.toml:1: parallel.llm: pins the planner's choice") &&
                 ContainsSubstring("fix: remove it"));
  CHECK_THAT(refusal("[parallel]\npipeline = []\n" + kCut),
             ContainsSubstring("other.toml:2: parallel.pipeline: unknown key"));
  CHECK_THAT(refusal(""), ContainsSubstring("other.toml: no layout"));
  CHECK_THAT(refusal("[parallel]\npipelines = []\n"), ContainsSubstring("other.toml:1: no layout"));
  CHECK_THAT(refusal("parallel = 3\n"), ContainsSubstring("parallel: expected a table"));
  CHECK_THAT(refusal("[[parallel.pipelines"), ContainsSubstring("other.toml:1"));
  CHECK_THAT(refusal(std::string((1 << 20) + 1, '#')), ContainsSubstring("larger than 1 MiB"));
}

TEST_CASE("a layout file is checked as the section of a job file", "[job][errors]") {
  const auto stages = [](const std::string& text) {
    return refusal("[[parallel.pipelines]]\nstages = [" + text + "]\n");
  };
  CHECK_THAT(stages(R"({node = 2, vision = "all", llm = "all"})"),
             ContainsSubstring("other.toml:2: parallel.pipelines[0].stages[0].node: 2, but the job "
                               "has 2 nodes"));
  CHECK_THAT(stages(R"({node = 1, device = 1, vision = "all", llm = "all"})"),
             ContainsSubstring("a node has 1 device"));
  CHECK_THAT(stages(R"({node = 0, vision = "all", llm = [0, 5]})"),
             ContainsSubstring("llm has 6 layers") && ContainsSubstring("must end at 6"));
  CHECK_THAT(stages(R"({node = 0, vision = "all", llm = [0, 4]}, {node = 1, llm = [3, 6]})"),
             ContainsSubstring("layer 3 of llm is on two stages"));
  CHECK_THAT(stages(R"({node = 0, vison = "all", llm = "all"})"),
             ContainsSubstring("no module is called 'vison'") &&
                 ContainsSubstring("did you mean vision?"));
  CHECK_THAT(refusal(kCut + kGroups.substr(kGroups.find("[[parallel.replicas]]"))),
             ContainsSubstring("parallel.pipelines is there too"));
  // All at once, but no more than an error shows.
  const std::string many = stages(R"({node = 7, x = 1, y = 2, z = 3, w = 4, v = 5})");
  CHECK_THAT(many, ContainsSubstring("'x'") && ContainsSubstring("'w'") &&
                       ContainsSubstring("1 more problems: they show once these are corrected"));
}

TEST_CASE("a layout with more llm copies than samples in a batch is refused", "[job][errors]") {
  Job job = small_job();
  job.train.global_batch_size = 1;
  CHECK(refusal(kCut, job).empty());
  CHECK_THAT(refusal(kCut + kCut, job),
             ContainsSubstring("other.toml:1: 2 copies of llm, but the job's "
                               "train.global_batch_size is 1") &&
                 ContainsSubstring("fix: write at most 1 of them"));
}

TEST_CASE("the text of a layout file is read as it is, within a bound", "[job][errors]") {
  const JobFolder folder;
  CHECK(read_layout_text(folder.write("other.toml", kCut)).value() == kCut);
  const auto missing = read_layout_text(folder.path() / "nowhere.toml");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Errc::not_found);
  CHECK(missing.error().message == "no such layout file");
  const auto large = read_layout_text(folder.write("large.toml", std::string((1 << 20) + 1, ' ')));
  REQUIRE_FALSE(large.ok());
  CHECK_THAT(large.error().message, ContainsSubstring("larger than 1 MiB"));
}

}  // namespace
}  // namespace troupe::job
