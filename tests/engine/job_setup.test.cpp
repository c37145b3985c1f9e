#include "engine/setup/job_setup.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/setup/initial_layers.hpp"
#include "models/llama/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

#include <catch2/catch_approx.hpp>
#include <string>
#include <variant>
#include <vector>

namespace troupe::engine {
namespace {

TEST_CASE("all that keeps a job from being prepared is told at once", "[engine][errors]") {
  job::Job job = tiny_job();
  CHECK(setup_problems(job).empty());

  job.data.max_pixels = 1;
  for (auto& module : job.modules)
    if (module.kind == ModuleKind::llm) {
      auto& llm = module.config.edit<models::LlmConfig>();
      llm.vocab_size = 10;
      llm.head_dim = 7;
    }
  std::vector<std::string> wheres;
  for (const auto& problem : setup_problems(job)) wheres.push_back(problem.where);
  // In order: the model alone, the model and its data, the data alone.
  const std::vector<std::string> expected{"modules.llm.config.head_dim",
                                          "modules.llm.config.vocab_size", "data.max_pixels"};
  CHECK((wheres == expected));

  CHECK(setup_problems(job)[1].message == "vocab_size 10 is less than the tokenizer's 320");
  const auto setup = prepare(job);
  REQUIRE_FALSE(setup.ok());
  CHECK(setup.error().where == expected.front());
}

TEST_CASE("encoders offload under schedules of phases alone", "[engine][errors]") {
  job::Job job = tiny_job();
  job.scheduler.offload_encoders = "activations";
  const auto problems = setup_problems(job);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].where == "scheduler.offload_encoders");
  CHECK(problems[0].message.find("'1f1b' has no phases") != std::string::npos);
  for (const auto* schedule : {"three-phase", "dip"}) {
    job.scheduler.schedule = schedule;
    CHECK(setup_problems(job).empty());
  }
}

TEST_CASE("NCCL chooses the order of sums but in fp64, or where the chain is asked for",
          "[engine]") {
  job::Job job = tiny_job();
  const auto sums = [&](const char* asked, Dtype dtype) {
    job.cluster.sums = asked;
    job.train.dtype = dtype;
    return prepare(job).value().model.sums;
  };
  CHECK(job.cluster.sums == "messages");
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
    CHECK(sums("messages", dtype) == SumOrder::chain);
    CHECK(sums("nccl-chain", dtype) == SumOrder::nccl_chain);
    CHECK(sums("auto", dtype) == SumOrder::chain);  // Nobody has chosen: no plan says auto.
  }
  CHECK(sums("nccl", Dtype::fp64) == SumOrder::nccl_chain);
  CHECK(sums("nccl", Dtype::fp32) == SumOrder::nccl);
  CHECK(sums("nccl", Dtype::bf16) == SumOrder::nccl);
}

TEST_CASE("moments of encoders may be in host memory under any schedule", "[engine][errors]") {
  job::Job job = tiny_job();
  const auto modules_in_host = [&] {
    std::vector<std::string> names;
    const JobSetup setup = prepare(job).value();
    for (const auto& module : setup.model.modules)
      if (module.moments_in_host) names.push_back(module.name);
    for (const auto& parameter : setup.parameters)
      CHECK(parameter.moments_in_host ==
            (parameter.trains && setup.model.at(parameter.uses.front().module).moments_in_host));
    return names;
  };
  const auto offloads_activations = [&] {
    return planner_options(prepare(job).value(), 600, 1).microbatching.offload_encoders;
  };
  CHECK(modules_in_host().empty());
  job.scheduler.offload_encoders = "moments";
  CHECK(setup_problems(job).empty());
  CHECK(modules_in_host() == std::vector<std::string>{"vision", "projector"});
  CHECK_FALSE(offloads_activations());
  job.modules[0].freeze = true;
  CHECK(modules_in_host() == std::vector<std::string>{"projector"});
  job.scheduler.offload_encoders = "both";
  CHECK(setup_problems(job).size() == 1);
  job.scheduler.schedule = "dip";
  CHECK(setup_problems(job).empty());
  CHECK(modules_in_host() == std::vector<std::string>{"projector"});
  CHECK(offloads_activations());
  job.scheduler.offload_encoders = "activations";
  CHECK(modules_in_host().empty());
  CHECK(offloads_activations());
}

TEST_CASE("what a job says about cutting a batch is known without a model", "[engine]") {
  JobSetup setup;
  setup.job.balancer.exchange = "auto";
  setup.job.train.microbatches = 7;
  setup.job.scheduler.schedule = "three-phase";
  setup.job.scheduler.offload_encoders = "activations";
  const MicrobatchingOptions options = microbatching_options(setup);
  CHECK(options.exchange == "auto");
  CHECK(options.microbatches == 7);
  CHECK(scheduler::has_phases(options.schedule));
  CHECK(options.offload_encoders);
}

TEST_CASE("parameters of encoders may be in host memory under schedules of phases",
          "[engine][errors]") {
  job::Job job = tiny_job();
  job.modules[0].freeze = true;
  const auto in_host = [&](bool ModuleSpec::*what) {
    std::vector<std::string> names;
    const JobSetup setup = prepare(job).value();
    for (const auto& module : setup.model.modules)
      if (module.*what) names.push_back(module.name);
    return names;
  };
  using Names = std::vector<std::string>;
  job.scheduler.offload_encoders = "parameters";
  const auto problems = setup_problems(job);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].where == "scheduler.offload_encoders");
  CHECK(problems[0].message.find("'1f1b' has no phases in which an encoder's parameters") !=
        std::string::npos);
  job.scheduler.schedule = "three-phase";
  CHECK(setup_problems(job).empty());
  CHECK(in_host(&ModuleSpec::parameters_in_host) == Names{"vision", "projector"});
  CHECK(in_host(&ModuleSpec::moments_in_host).empty());
  CHECK_FALSE(planner_options(prepare(job).value(), 600, 1).microbatching.offload_encoders);
  job.scheduler.offload_encoders = "all";
  CHECK(in_host(&ModuleSpec::parameters_in_host) == Names{"vision", "projector"});
  CHECK(in_host(&ModuleSpec::moments_in_host) == Names{"projector"});
  CHECK(planner_options(prepare(job).value(), 600, 1).microbatching.offload_encoders);
  job.scheduler.offload_encoders = "both";
  CHECK(in_host(&ModuleSpec::parameters_in_host).empty());
}

TEST_CASE("a size that breaks the model and its data is told once", "[engine][errors]") {
  job::Job job = tiny_job();
  for (auto& module : job.modules)
    if (module.config.get_if<models::VisionConfig>())
      module.config.edit<models::VisionConfig>().patch_size = 0;
  CHECK(setup_problems(job).size() == 1);
}

TEST_CASE("each encoder of a medium has sizes of its own, and its own name in errors", "[engine]") {
  job::Job job = tiny_job();
  auto second = job.modules.front();
  REQUIRE((second.config.get_if<models::VisionConfig>() != nullptr));
  second.name = "second";
  second.config.edit<models::VisionConfig>().patch_size = 7;
  job.modules.insert(job.modules.begin(), second);
  const auto setup = prepare(job).value();
  REQUIRE(setup.data.vision.size() == 2);
  CHECK(setup.data.vision[0].module == "second");
  CHECK(setup.data.vision[0].input.patch_size == 7);
  CHECK(setup.data.vision[1].input.patch_size == 14);
  CHECK((media_modules(setup).vision == std::vector<ModuleId>{ModuleId{0}, ModuleId{1}}));
  CHECK(media_modules(setup).audio.empty());
  const auto parts = wanted_parts({0, {ModuleId{1}}, true}, media_modules(setup));
  CHECK((parts == data::WantedParts{2, 0, true}));

  job.data.max_pixels = 3;
  CHECK(setup_problems(job).size() == 1);
}

// ---- how long a job trains: 10 records in batches of 4, so 3 steps an epoch (4, 4, 2)

TrainingLength length_of(job::DurationUnit unit, std::int64_t amount) {
  job::Job job;
  job.train.global_batch_size = 4;
  job.train.duration = {unit, amount};
  job.optimizer.lr = 0.1;
  job.optimizer.min_lr = 0.02;
  job.optimizer.warmup_steps = 1;
  return {job, 10};
}

TEST_CASE("epochs and samples are as many steps as it takes to consume them", "[engine]") {
  CHECK(length_of(job::DurationUnit::steps, 7).steps() == 7);
  CHECK(length_of(job::DurationUnit::epochs, 2).steps() == 6);
  // By hand, with the short batch at the end of an epoch.
  const std::vector<std::int64_t> steps_of{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4, 5};
  for (std::size_t i = 0; i < steps_of.size(); ++i) {
    const auto samples = static_cast<std::int64_t>(i) + 1;
    INFO(samples << " samples");
    CHECK(length_of(job::DurationUnit::samples, samples).steps() == steps_of[i]);
  }
  CHECK_FALSE(length_of(job::DurationUnit::samples, 10).reached(2, 1000000));
  // From the second epoch on there are 14: 3 steps and 4.
  job::Job job;
  job.train.global_batch_size = 4;
  job.train.duration = {job::DurationUnit::epochs, 2};
  CHECK(TrainingLength(job, data::Epochs(10).grown(1, {14})).steps() == 7);
  CHECK(length_of(job::DurationUnit::samples, 10).reached(3, 0));
}

TEST_CASE("devices that draw at once share the cores of their machine", "[engine]") {
  job::Cluster cluster;
  cluster.local_nodes = 2;
  cluster.devices_per_node = 3;
  CHECK(drawing_threads(cluster, NodeId{0}, 16) == 2);  // Six devices on 16 cores.
  CHECK(drawing_threads(cluster, NodeId{2}, 16) == 5);  // Three, on a machine of their own.
  CHECK(drawing_threads(cluster, NodeId{1}, 4) == 1);
  CHECK(drawing_threads(cluster, NodeId{0}, 0) == 1);  // Nobody knows how many there are.
}

TEST_CASE("where tokens decide, the rate falls with their share", "[engine]") {
  const auto length = length_of(job::DurationUnit::tokens, 1000);
  CHECK(length.steps() == 0);
  CHECK_FALSE(length.reached(100000, 999));
  CHECK(length.reached(1, 1000));

  CHECK(length.learning_rate(1, 0) == Catch::Approx(0.05));  // Warm-up goes by steps.
  CHECK(length.learning_rate(2, 0) == Catch::Approx(0.1));
  CHECK(length.learning_rate(9, 500) == Catch::Approx(0.06));
  CHECK(length.learning_rate(40, 500) == length.learning_rate(9, 500));
  CHECK(length.learning_rate(50, 1000) == Catch::Approx(0.02));
  CHECK(length.learning_rate(50, 5000) == Catch::Approx(0.02));
}

}  // namespace
}  // namespace troupe::engine
