#include "runtime/job/load_job.hpp"
#include "models/llama/family.hpp"
#include "tests/runtime/job/job_files.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

using namespace troupe;
using namespace troupe::job;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a small job file becomes a job with every default filled", "[job]") {
  const JobFolder folder;

  const auto reading = read_job(folder.write("job.toml", kSmallJob), {});

  REQUIRE(shown(reading) == "");
  const Job& job = reading.loaded.job;
  CHECK(job.job.name == "small");
  CHECK(job.job.seed == 42);
  CHECK(job.job.run_dir == "runs/small");
  CHECK(job.train.duration == Duration{DurationUnit::steps, 20});
  CHECK(job.train.global_batch_size == 16);
  CHECK(job.optimizer.beta2 == 0.95);
  CHECK(job.data.sources.at(0).media == folder.path());
  CHECK(job.cluster.nodes == 1);
  CHECK(job.parallel.mode == LayoutMode::automatic);
  CHECK(job.modules.back().attention == AttentionRule::causal);
}

TEST_CASE("nodes wait for another head where some are of other machines, unless the job says",
          "[job]") {
  const JobFolder folder;
  const auto timeout = [&](const std::vector<std::string>& words) {
    return read_job(folder.write("job.toml", kSmallJob), words).loaded.job.cluster.head_timeout_s;
  };
  CHECK(timeout({"cluster.local_nodes=3"}) == 0);
  CHECK(timeout({"cluster.nodes=3"}) == 60);
  CHECK(timeout({"cluster.nodes=3", "cluster.local_nodes=1"}) == 60);
  CHECK(timeout({"cluster.nodes=3", "cluster.local_nodes=3"}) == 0);
  CHECK(timeout({"cluster.nodes=3", "cluster.head_timeout_s=0"}) == 0);
  CHECK(timeout({"cluster.local_nodes=3", "cluster.head_timeout_s=5"}) == 5);
}

TEST_CASE("a run folder has a name, also where a slash ends it", "[job]") {
  const JobFolder folder;
  for (const char* given : {"job.run_dir=runs/x/", "job.run_dir=runs/./x", "job.run_dir=runs/x"})
    CHECK(read_job(folder.write("job.toml", kSmallJob), {given}).loaded.job.job.run_dir ==
          "runs/x");
}

TEST_CASE("a folder for lengths is the same from wherever the run goes on", "[job]") {
  const JobFolder folder;
  const auto index = [&](const std::string& given) {
    const auto reading = read_job(folder.write("job.toml", kSmallJob), {"data.index=" + given});
    INFO(shown(reading));
    REQUIRE(reading.problems.empty());
    return reading.loaded.job.data.index;
  };
  CHECK(read_job(folder.write("job.toml", kSmallJob), {}).loaded.job.data.index == "auto");
  CHECK(index("auto") == "auto");
  CHECK(index("off") == "off");
  CHECK(index("/scratch/./lengths") == "/scratch/lengths");
  CHECK(index("./lengths") == (std::filesystem::current_path() / "lengths").string());
}

TEST_CASE("modules stand in topological order with next filled", "[job]") {
  // The file names the llm first and the projector before its encoder. By hand: vision feeds
  // vision_projector (its name), that feeds the llm, and the llm comes last.
  const JobFolder folder;

  const auto reading = read_job(folder.write("job.toml", kSmallJob), {});

  std::vector<std::string> edges;
  for (const auto& module : reading.loaded.job.modules)
    edges.push_back(module.name + ">" + module.next);
  CHECK(edges ==
        std::vector<std::string>{"vision>vision_projector", "vision_projector>llm", "llm>"});
}

TEST_CASE("a layout by hand is kept as values", "[job]") {
  const JobFolder folder;

  const auto reading = read_job(folder.write("job.toml", kLayoutJob), {});

  REQUIRE(shown(reading) == "");
  const auto& pipelines = reading.loaded.job.parallel.layout.pipelines;
  REQUIRE(pipelines.size() == 2);
  CHECK(pipelines[0] ==
        std::vector<HandStage>{{0, 0, {{"vision", LayerRange{0, 4}}}},
                               {1, 0, {{"vision", LayerRange{4, 6}}, {"llm", std::nullopt}}}});
  CHECK(reading.loaded.job.parallel.mode == LayoutMode::manual);
}

TEST_CASE("a stage on several devices says which, and by which degrees", "[job]") {
  const JobFolder folder;
  const std::string text = kReplicasJob;
  const std::string single = "stages = [{node = 0, vision = \"all\"}]";
  REQUIRE(text.find(single) != std::string::npos);
  const auto with = [&](const std::string& stage) {
    std::string other = text;
    other.replace(other.find(single), single.size(), "stages = [" + stage + "]");
    return read_job(folder.write("job.toml", other), {"cluster.devices_per_node=4"});
  };
  const auto reading = with("{node = 0, devices = [0, 1, 3, 2], tp = 2, cp = 2, vision = \"all\"}");
  const auto& stage = reading.loaded.job.parallel.layout.replicas[0].stages[0];
  CHECK(stage.devices == std::vector<std::int32_t>{0, 1, 3, 2});
  CHECK(stage.tp == 2);
  CHECK(stage.cp == 2);
  // What is written is read again.
  CHECK_THAT(to_toml(reading.loaded),
             ContainsSubstring("{node = 0, devices = [0, 1, 3, 2], tp = 2, cp = 2, vision"));
  CHECK_THAT(shown(with("{node = 0, devices = [0, 4], tp = 2, vision = \"all\"}")),
             ContainsSubstring("devices: 4, but a node has 4 devices"));
  CHECK_THAT(shown(with("{node = 0, device = 1, devices = [0, 1], tp = 2, vision = \"all\"}")),
             ContainsSubstring("device and devices are given"));
  CHECK_THAT(shown(with("{node = 0, devices = [0, \"one\"], tp = 2, vision = \"all\"}")),
             ContainsSubstring("expected devices of the node"));
  CHECK_THAT(shown(with("{node = 0, devices = [], vision = \"all\"}")),
             ContainsSubstring("no device"));
  CHECK_THAT(shown(with("{node = 0, tp = 0, vision = \"all\"}")), ContainsSubstring("tp"));
}

TEST_CASE("a layout by replicas is kept as values", "[job]") {
  const JobFolder folder;
  const auto reading = read_job(folder.write("job.toml", kReplicasJob), {});
  REQUIRE(shown(reading) == "");
  const auto& layout = reading.loaded.job.parallel.layout;
  CHECK(layout.pipelines.empty());
  REQUIRE(layout.replicas.size() == 3);
  CHECK(layout.replicas[0] == HandReplica{{"vision"}, {{0, 0, {{"vision", std::nullopt}}}}});
  CHECK(layout.replicas[1] ==
        HandReplica{{"llm"},
                    {{0, 0, {{"llm", LayerRange{0, 3}}}}, {1, 0, {{"llm", LayerRange{3, 6}}}}}});
  CHECK(layout.copies_of("llm").size() == 2);
  CHECK(reading.loaded.job.parallel.mode == LayoutMode::manual);
}

TEST_CASE("the command line wins over the file and takes bare words", "[job]") {
  const JobFolder folder;
  const auto file = folder.write("job.toml", kSmallJob);

  const auto reading =
      read_job(file, {"train.dtype=bf16", "job.name=7", "optimizer.betas=[0.8, 0.9]",
                      "modules.llm.config.num_hidden_layers=2", "data.sources[0].format=llava"});

  REQUIRE(shown(reading) == "");
  const Job& job = reading.loaded.job;
  CHECK(job.train.dtype == Dtype::bf16);
  CHECK(job.job.name == "7");
  CHECK(job.optimizer.beta1 == 0.8);
  CHECK(job.modules.back().config.as<models::LlmConfig>().num_hidden_layers == 2);
  CHECK(reading.loaded.origins.at("train.dtype").where == "command line");
}

TEST_CASE("a duration on the command line replaces the file's", "[job]") {
  const JobFolder folder;
  const auto file = folder.write("job.toml", kSmallJob);

  CHECK(read_job(file, {"train.epochs=2"}).loaded.job.train.duration ==
        Duration{DurationUnit::epochs, 2});
  CHECK_THAT(shown(read_job(file, {"train.epochs=2", "train.steps=3"})),
             ContainsSubstring("how long to train is said by steps, epochs"));
}

TEST_CASE("extends merges key by key and later files win", "[job]") {
  const JobFolder folder;
  folder.write("base/base.toml", kSmallJob);
  folder.write("base/more.toml", "[optimizer]\nlr = 0.5\nmin_lr = 0.25\n");
  const auto file = folder.write("job.toml",
                                 "extends = [\"base/base.toml\", \"base/more.toml\"]\n"
                                 "[optimizer]\nlr = 0.75\n[train]\nsamples = 100\n");

  const auto reading = read_job(file, {});

  REQUIRE(shown(reading) == "");
  CHECK(reading.loaded.job.optimizer.lr == 0.75);
  CHECK(reading.loaded.job.optimizer.min_lr == 0.25);
  CHECK(reading.loaded.job.train.duration == Duration{DurationUnit::samples, 100});
  CHECK_THAT(reading.loaded.origins.at("optimizer.min_lr").where, ContainsSubstring("more.toml:3"));
  // The base names samples.json beside itself, not beside the file that extends it.
  CHECK(reading.loaded.job.data.sources[0].json == folder.path() / "base/samples.json");
}

TEST_CASE("all problems are reported at once, each with its line", "[job][errors]") {
  const JobFolder folder;
  std::string text = kSmallJob;
  text += "[cluster]\nlocal_nodes = \"two\"\nthreads = 2\n[trian]\nsteps = 1\n";

  const auto reading = read_job(folder.write("job.toml", text), {"optimizer.lr=fast"});

  REQUIRE(reading.problems.size() == 4);
  const auto base = std::count(kSmallJob.begin(), kSmallJob.end(), '\n');
  CHECK_THAT(shown(reading), ContainsSubstring("job.toml:" + std::to_string(base + 2) +
                                               ": cluster.local_nodes: expected an integer"));
  CHECK_THAT(shown(reading), ContainsSubstring("job.toml:" + std::to_string(base + 3)));
  CHECK_THAT(shown(reading), ContainsSubstring("did you mean train?"));
  CHECK_THAT(shown(reading), ContainsSubstring("command line: optimizer.lr: expected a number"));
}

TEST_CASE("load_job folds many problems into five lines", "[job][errors]") {
  const JobFolder folder;
  std::string text = kSmallJob;
  for (int i = 0; i < 9; ++i) text += "[wrong" + std::to_string(i) + "]\n";

  const auto loaded = load_job(folder.write("job.toml", text), {});

  REQUIRE_FALSE(loaded.ok());
  const auto message = to_string(loaded.error());
  CHECK(std::count(message.begin(), message.end(), '\n') == 4);
  CHECK_THAT(message, ContainsSubstring("5 more problems"));
}

TEST_CASE("resolved.toml reads back as the same job", "[job][property]") {
  const JobFolder folder;
  const auto text = GENERATE(kSmallJob, kLayoutJob, kReplicasJob);
  const auto overrides = GENERATE(
      std::vector<std::string>{},
      std::vector<std::string>{"train.epochs=3", "train.dtype=fp64", "modules.vision.lr=1e-5"},
      std::vector<std::string>{"job.seed=9223372036854775807",
                               "optimizer.eps=1.2345678901234567e-9"},
      std::vector<std::string>{"job.run_dir=a \"b\\\\c", "modules.vision.freeze=true",
                               "modules.llm.attention=modality"},
      std::vector<std::string>{
          "debug.slow_shapes=[{module=\"llm\",max_rows=64,factor=2.5,per_sample=true,node=0,"
          "from_step=3,to_step=9}]",
          "cluster.device_memory_gib=1.5", "cluster.device_tflops=0.05",
          "observe.metrics_listen=9400", "scheduler.max_in_flight=3", "scheduler.boundary=leader",
          "balancer.evaluations=7", "balancer.adaptive_correction=true", "balancer.dealing=count",
          "balancer.exchange=auto", "balancer.items=whole", "data.index=./lengths"},
      std::vector<std::string>{
          "debug.layouts=[{from_step=3,pipelines=[{stages=[{node=0,vision=\"all\",llm=\"all\"}]}]},"
          "{from_step=9,replicas=[{modules=[\"vision\"],stages=[{node=0,vision=\"all\"}]},"
          "{modules=[\"llm\"],stages=[{node=0,llm=\"all\"}]}]}]"});

  const auto first = read_job(folder.write("job.toml", text), overrides);
  REQUIRE(shown(first) == "");
  const auto resolved = to_toml(first.loaded);
  INFO(resolved);
  const auto second = parse_job(resolved, "resolved.toml", {});

  REQUIRE(shown(second) == "");
  CHECK(second.loaded.job == first.loaded.job);
}

TEST_CASE("a job of another machine may name files that are not here", "[job]") {
  const JobFolder folder;
  const std::string text = std::string(kSmallJob) +
                           "[[data.sources]]\njson = \"/of/another/machine.json\"\n"
                           "[scheduler]\nprofile = \"/of/another/profile.json\"\n";
  CHECK_THAT(shown(parse_job(text, "resolved.toml", {})),
             ContainsSubstring("machine.json is not there") &&
                 ContainsSubstring("profile.json is not there"));

  const auto reading = parse_job(text, "resolved.toml", {}, Paths::of_another_machine);

  REQUIRE(shown(reading) == "");
  CHECK(reading.loaded.job.data.sources.back().json == "/of/another/machine.json");
  CHECK(reading.loaded.job.data.sources.back().media == "/of/another");
}

TEST_CASE("a source that only some nodes see need not be where the job is read", "[job]") {
  const JobFolder folder;
  const auto read = [&](const std::vector<std::string>& words) {
    return read_job(folder.write("job.toml", std::string(kSmallJob) +
                                                 "[[data.sources]]\njson = \"far/list.json\"\n"
                                                 "[cluster]\nlocal_nodes = 3\n"),
                    words);
  };
  CHECK_THAT(shown(read({})), ContainsSubstring("list.json is not there"));

  const auto reading = read({"data.sources[1].nodes=[2, 0]"});

  REQUIRE(shown(reading) == "");
  CHECK(reading.loaded.job.data.sources[0].nodes.empty());
  CHECK(reading.loaded.job.data.sources[1].nodes == std::vector<std::int32_t>{0, 2});
  CHECK(reading.loaded.job.data.sources[1].media == folder.path() / "far");
  REQUIRE(reading.loaded.warnings.size() == 1);
  CHECK_THAT(reading.loaded.warnings[0].message,
             ContainsSubstring("list.json is not there") && ContainsSubstring("only nodes 0, 2"));
  CHECK_THAT(reading.loaded.warnings[0].fix, ContainsSubstring("where `troupe train` runs"));
  const auto again =
      parse_job(to_toml(reading.loaded), "resolved.toml", {}, Paths::of_another_machine);
  REQUIRE(shown(again) == "");
  CHECK(again.loaded.job.data == reading.loaded.job.data);
  CHECK(again.loaded.warnings.empty());
}

TEST_CASE("figures are shown on the loopback where only a port is given", "[job]") {
  const JobFolder folder;
  const auto listen = [&](const std::string& value) {
    return read_job(folder.write("job.toml", kSmallJob), {"observe.metrics_listen=" + value})
        .loaded.job.observe.metrics_listen;
  };
  CHECK(listen("9400") == "127.0.0.1:9400");
  CHECK(listen("\"9400\"") == "127.0.0.1:9400");
  CHECK(listen("0.0.0.0:9400") == "0.0.0.0:9400");
  CHECK(listen("") == "");
}

TEST_CASE("resolved.toml names the origin of every value", "[job]") {
  const JobFolder folder;
  const auto first = read_job(folder.write("job.toml", kSmallJob), {"job.seed=7"});

  const auto resolved = to_toml(first.loaded);

  CHECK_THAT(resolved, ContainsSubstring("seed = 7  # command line"));
  CHECK_THAT(resolved, ContainsSubstring("eps = 1e-08  # default"));
  // Of the llm alone: an encoder that names it is refused.
  const auto attention = resolved.find("attention = \"causal\"  # default");
  REQUIRE(attention != std::string::npos);
  CHECK(resolved.rfind("[modules.", attention) == resolved.find("[modules.llm]"));
  CHECK(resolved.find("attention = ", attention + 1) == std::string::npos);
  CHECK_THAT(resolved, ContainsSubstring("steps = 20  # " + folder.path().string() + "/job.toml:"));
}

TEST_CASE("a damaged job file never does more than report", "[job][property]") {
  // Random bytes are put over a good file: it must load, or tell what is wrong with a place.
  const JobFolder folder;
  const auto seed = GENERATE(range(0u, 60u));
  std::mt19937 random(seed);
  std::string text = kLayoutJob;
  for (int i = 0; i < 4; ++i) text[random() % text.size()] = static_cast<char>(random() % 256);

  const auto reading = read_job(folder.write("job.toml", text), {});

  for (const auto& problem : reading.problems) {
    CHECK_FALSE(problem.message.empty());
    CHECK_FALSE(problem.where.empty());
    CHECK_FALSE(problem.fix.empty());
  }
}
