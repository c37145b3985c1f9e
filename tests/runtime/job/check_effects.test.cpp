// What a job says in vain is a warning at its own line, and the job is good all the same.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/runtime/job/job_files.hpp"

using namespace troupe;
using namespace troupe::job;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What is given in vain, and the one warning there must be; or `good`, where there is none.
struct VainCase {
  std::string key;
  std::vector<std::string> overrides;
  std::string why;
  std::vector<std::string> good = {};
};

std::vector<Error> warnings(const std::string& job, const std::vector<std::string>& overrides) {
  const JobFolder folder;
  const auto reading = read_job(folder.write("job.toml", job), overrides);
  INFO(shown(reading));
  REQUIRE(reading.ok());
  return reading.loaded.warnings;
}

void check_one(const std::string& job, const VainCase& vain) {
  CAPTURE(vain.key);
  const auto found = warnings(job, vain.overrides);
  REQUIRE(found.size() == 1);
  CHECK(found.front().where == "command line");
  CHECK_THAT(found.front().message, ContainsSubstring(vain.key));
  CHECK_THAT(found.front().message, ContainsSubstring(vain.why));
  CHECK_FALSE(found.front().fix.empty());
  CHECK(warnings(job, vain.good).empty());
}

}  // namespace

TEST_CASE("pins beside a layout by hand are warned of", "[job]") {
  // Two pipelines; the llm is one stage of the first and two of the second.
  const auto [key, value, actual] = GENERATE(table<std::string, std::string, std::string>(
      {{"tp", "2", "has 1"}, {"cp", "2", "has 1"}, {"dp", "3", "has 2"}, {"pp", "1", "has 2"}}));
  const std::string path = "parallel.llm." + key;
  check_one(kLayoutJob, {path, {path + "=" + value}, actual, {}});
  // Without the layout they are what the planner keeps.
  CHECK(warnings(kSmallJob, {path + "=" + value}).empty());
}

TEST_CASE("a pin that the layout by hand keeps is no word in vain", "[job]") {
  CHECK(warnings(kLayoutJob, {"parallel.llm.tp=1", "parallel.llm.dp=2", "parallel.vision.cp=1"})
            .empty());
}

TEST_CASE("a pin is held against the grids of the layout", "[job]") {
  // The llm on two devices of node 1; every device has a stage.
  const std::vector<std::string> grid{
      "cluster.devices_per_node=2",
      "parallel.pipelines=[{stages=[{node=0,vision=[0,3]},{node=0,device=1,vision=[3,6]},"
      "{node=1,devices=[0,1],tp=2,llm=\"all\"}]}]"};
  const auto with = [&](const std::string& pin) {
    auto words = grid;
    words.push_back(pin);
    return warnings(kLayoutJob, words);
  };
  CHECK(with("parallel.llm.tp=2").empty());
  for (const auto& [pin, has] : {std::pair("parallel.vision.tp=2", "vision.tp = 2 has no effect"),
                                 std::pair("parallel.llm.tp=1", "llm.tp = 1 has no effect")}) {
    const auto found = with(pin);
    REQUIRE(std::ranges::any_of(found, [&, has = has](const Error& warning) {
      return warning.message.find(has) != std::string::npos;
    }));
  }
}

TEST_CASE("a pin in a file is warned of at its line", "[job]") {
  const auto found = warnings(std::string(kLayoutJob) + "[parallel.vision]\ntp = 2\n", {});
  REQUIRE(found.size() == 1);
  CHECK_THAT(found.front().where, ContainsSubstring("job.toml:"));
}

TEST_CASE("keys without an effect in this job are warned of", "[job]") {
  const auto vain = GENERATE(values<VainCase>({
      // clang-format off
      {"modules.vision.lr", {"modules.vision.lr=0.1", "modules.vision.freeze=true"}, "frozen", {"modules.vision.lr=0.1"}},
      {"data.pad_audio", {"data.pad_audio=true"}, "no module takes audio", {"data.pad_audio=false"}},
      {"balancer.policy", {"balancer.policy=auto", "train.microbatches=1"}, "nothing to balance", {"balancer.policy=auto"}},
      {"balancer.evaluations", {"balancer.evaluations=500", "balancer.policy=dflop"}, "does not search", {"balancer.evaluations=500", "balancer.policy=auto"}},
      {"train.deterministic", {"train.deterministic=false"}, "on CPUs", {"train.deterministic=false", "cluster.device=cuda"}},
      {"cluster.sums", {"cluster.sums=nccl-chain", "train.deterministic=false", "cluster.device=cuda"}, "in vain", {"cluster.sums=nccl-chain", "cluster.device=cuda"}},
      {"optimizer.warmup_steps", {"optimizer.warmup_steps=11", "train.steps=10"}, "more than train.steps 10", {"optimizer.warmup_steps=10", "train.steps=10"}},
      // clang-format on
  }));
  check_one(kSmallJob, vain);
}

TEST_CASE("attention by modality is warned of where there is none but text", "[job]") {
  const std::string text_job = R"(
[modules.llm]
kind = "llm"
[[data.sources]]
json = "samples.json"
[train]
steps = 1
)";
  check_one(text_job,
            {"modules.llm.attention", {"modules.llm.attention=modality"}, "text is causal"});
  CHECK(warnings(kSmallJob, {"modules.llm.attention=modality"}).empty());
}

TEST_CASE("dealing is warned of where one pipeline trains all samples", "[job]") {
  const auto with = [](const std::string& pipelines) {
    return warnings(kSmallJob, {"balancer.dealing=count", "cluster.local_nodes=2",
                                "parallel.mode=manual", "parallel.pipelines=[" + pipelines + "]"});
  };
  const std::string first = "{stages=[{node=0,vision=\"all\",llm=\"all\"}]}";
  const std::string second = ",{stages=[{node=1,vision=\"all\",llm=\"all\"}]}";
  CHECK(with(first + second).empty());
  const auto found = with("{stages=[{node=0,vision=\"all\"},{node=1,llm=\"all\"}]}");
  REQUIRE(found.size() == 1);
  CHECK_THAT(found.front().message, ContainsSubstring("in one pipeline"));
  CHECK_FALSE(found.front().fix.empty());
}

TEST_CASE("an exchange is warned of where no encoder has a second replica", "[job]") {
  const auto with = [](const std::string& replicas) {
    return warnings(kSmallJob, {"balancer.exchange=per-phase", "cluster.local_nodes=3",
                                "parallel.mode=manual", "parallel.replicas=[" + replicas + "]"});
  };
  const auto vision = [](int node) {
    return "{modules=[\"vision\"],stages=[{node=" + std::to_string(node) + ",vision=\"all\"}]},";
  };
  const auto llm = [](int node) {
    return "{modules=[\"llm\"],stages=[{node=" + std::to_string(node) + ",llm=\"all\"}]},";
  };
  CHECK(with(vision(0) + vision(1) + llm(2)).empty());
  const auto found = with(vision(0) + llm(1) + llm(2));
  REQUIRE(found.size() == 1);
  CHECK_THAT(found.front().message, ContainsSubstring("no encoder has two replicas"));
  CHECK(warnings(kSmallJob, {"balancer.exchange=auto"}).empty());  // The planner may lay out more.
}

TEST_CASE("a way of rows is warned of where the layout has no other", "[job]") {
  // So many encoder replicas, then one of the llm, on a node each.
  const auto warned = [](const std::string& boundary, int encoders) {
    std::string replicas;
    for (int node = 0; node < encoders; ++node)
      replicas +=
          "{modules=[\"vision\"],stages=[{node=" + std::to_string(node) + ",vision=\"all\"}]},";
    const std::string last = std::to_string(encoders);
    replicas += "{modules=[\"llm\"],stages=[{node=" + last + ",llm=\"all\"}]}";
    std::string messages;
    for (const Error& warning :
         warnings(kSmallJob, {"scheduler.boundary=" + boundary,
                              "cluster.local_nodes=" + std::to_string(encoders + 1),
                              "parallel.mode=manual", "parallel.replicas=[" + replicas + "]"}))
      messages += warning.message + "\n";
    return messages;
  };
  CHECK(warned("gather-scatter", 2).empty());
  CHECK_THAT(warned("gather-scatter", 1), ContainsSubstring("no encoder has two replicas"));
  CHECK_THAT(warned("leader", 2), ContainsSubstring("every stage has one device"));
  CHECK(warned("direct", 1).empty());
  CHECK(warnings(kSmallJob, {"scheduler.boundary=leader"}).empty());  // The planner may use grids.
}

TEST_CASE("whole items are warned of where nothing is exchanged", "[job]") {
  const auto found = warnings(kSmallJob, {"balancer.items=whole"});
  REQUIRE(found.size() == 1);
  CHECK_THAT(found.front().message, ContainsSubstring("balancer.exchange is off"));
  CHECK(warnings(kSmallJob, {"balancer.items=whole", "balancer.exchange=auto"}).empty());
}

TEST_CASE("encoders that keep nothing have nothing to offload", "[job]") {
  const std::vector<std::string> offloads{"scheduler.schedule=dip",
                                          "scheduler.offload_encoders=activations"};
  CHECK(warnings(kSmallJob, offloads).empty());
  CHECK(warnings(kSmallJob, {"scheduler.offload_encoders=moments"}).empty());
  auto frozen = offloads;
  frozen.insert(frozen.end(),
                {"modules.vision.freeze=true", "modules.vision_projector.freeze=true"});
  check_one(kSmallJob,
            {"scheduler.offload_encoders", frozen, "no encoder or projector trains", offloads});
  // But for parameters, which frozen ones have as well.
  for (const char* what : {"parameters", "all"})
    CHECK(warnings(kSmallJob,
                   {"scheduler.schedule=dip", std::string("scheduler.offload_encoders=") + what,
                    "modules.vision.freeze=true", "modules.vision_projector.freeze=true"})
              .empty());
}

TEST_CASE("spare nodes are warned of where a layout by hand gives them work", "[job]") {
  // Both nodes of it work.
  check_one(kLayoutJob,
            {"cluster.spares",
             {"cluster.spares=1"},
             "cluster.spares = 1 has no effect: parallel.pipelines, the layout by hand, "
             "gives work to 2 of 2 nodes",
             {"cluster.spares=1", "cluster.nodes=3"}});
  check_one(kReplicasJob,
            {"cluster.spares",
             {"cluster.spares=2", "cluster.nodes=3"},
             "cluster.spares = 2 keeps 1 spare: parallel.replicas, the layout by hand, "
             "gives work to 2 of 3 nodes",
             {"cluster.spares=2", "cluster.nodes=4"}});
  CHECK(warnings(kSmallJob, {"cluster.spares=1", "cluster.nodes=2"}).empty());
}

TEST_CASE("a layout beyond the last step is warned of", "[job]") {
  const auto from = [](int step) {
    return warnings(kSmallJob, {"debug.layouts=[{from_step=" + std::to_string(step) +
                                    ",pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]}]",
                                "train.steps=10"});
  };
  CHECK(from(10).empty());
  REQUIRE(from(11).size() == 1);
  CHECK_THAT(from(11)[0].message, ContainsSubstring("debug.layouts[0].from_step 11 is beyond"));
}

TEST_CASE("pixels are no budget of a job without pictures", "[job]") {
  const std::string text =
      "[job]\nname = \"t\"\n[modules.llm]\nkind = \"llm\"\n[[data.sources]]\n"
      "json = \"samples.json\"\n[train]\nsteps = 1\n";
  check_one(text, {"data.max_pixels", {"data.max_pixels=50176"}, "no module takes images", {}});
  check_one(text, {"data.min_pixels", {"data.min_pixels=784"}, "no module takes images", {}});
  CHECK(warnings(kSmallJob, {"data.max_pixels=50176"}).empty());
}

TEST_CASE("more microbatches than a pipeline has samples are warned of", "[job]") {
  // Two pipelines: four samples each make four microbatches, three each do not.
  check_one(kLayoutJob, {"train.microbatches 4",
                         {"train.global_batch_size=7", "train.microbatches=4"},
                         "the 3 samples that each of 2 pipelines gets",
                         {"train.global_batch_size=8", "train.microbatches=4"}});
}

TEST_CASE("pins are held against the copies of a module", "[job]") {
  CHECK(
      warnings(kReplicasJob, {"parallel.llm.dp=2", "parallel.vision.dp=1", "parallel.vision.pp=1"})
          .empty());
  check_one(kReplicasJob, {"parallel.vision.dp",
                           {"parallel.vision.dp=2"},
                           "parallel.replicas, the layout by hand, has 1",
                           {"parallel.vision.dp=1"}});
}

TEST_CASE("a resolved job says no more in vain than the job itself", "[job]") {
  const JobFolder folder;
  const auto reading = read_job(folder.write("job.toml", kLayoutJob), {});
  REQUIRE(reading.ok());
  const auto again = read_job(folder.write("resolved.toml", to_toml(reading.loaded)), {});
  REQUIRE(again.ok());
  CHECK(again.loaded.warnings.empty());
}

TEST_CASE("a key near one of the job file is found", "[job]") {
  CHECK(nearest_key("train.step").path == "train.steps");
  CHECK_FALSE(nearest_key("train.step").is_exact);
  CHECK(nearest_key("train.steps").is_exact);
  CHECK(nearest_key("steps").path == "train.steps");
  CHECK(nearest_key("steps").is_exact);
  CHECK(nearest_key("modules.vision.freez").path == "modules.vision.freeze");
  CHECK(nearest_key("parallel.llm.tp").is_exact);
  CHECK(nearest_key("reference").path.empty());
  CHECK(nearest_key("optimizer.sharded").path.empty());  // Not optimizer.betas: there is none.
}

TEST_CASE("a key of other programs is told what there is in its place", "[job]") {
  CHECK(nearest_key("lora").instead ==
        "there are no low-rank adapters; modules.NAME.freeze keeps weights as they are");
  CHECK(nearest_key("modules.llm.lora").instead ==
        "there are no low-rank adapters; modules.llm.freeze keeps weights as they are");
  CHECK(nearest_key("train.eval_every").instead.starts_with("nothing is evaluated"));
  CHECK(nearest_key("batch_size").instead == "write train.global_batch_size");
  CHECK(nearest_key("parallel.vision.tp_size").instead == "write parallel.vision.tp");
  CHECK(nearest_key("train.steps").instead.empty());
  CHECK(nearest_key("train.step").instead.empty());
}
