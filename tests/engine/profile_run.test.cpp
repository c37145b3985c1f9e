#include "engine/profiling/profile_run.hpp"
#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_speeds.hpp"
#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "tests/engine/audio_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

#include <torch/version.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <type_traits>

namespace troupe::engine {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

/// The tiny job with its run folder in a folder of the test.
struct ProfiledJob {
  data::TempFolder folder;
  JobSetup setup;
  ProfileOptions options;

  ProfiledJob() {
    auto job = tiny_job();
    job.job.name = "tiny";
    job.job.run_dir = folder.path() / "tiny";
    setup = prepare(job).value();
    options.tokens_max = 64;
    options.budget_s = 0.5;
  }
};

JobSetup setup_of(const job::Job& job) { return prepare(job).value(); }

StoredProfile stored_example() {
  StoredProfile stored;
  stored.key = {"00ff", "cpu \"x\"", "LibTorch 2", "fp32", 2};
  stored.profile.device = "cpu";
  stored.profile.layers = {{"llm.layers.0", "llm.block"}};
  stored.profile.profiles = {{"llm.block",
                              {2, 1},
                              scheduler::CostOrigin::modelled,
                              Bytes{1234},
                              {{16, {0.1, 0.2, 1.0 / 3, 4096}, {0.5, 0.25, 0, 64}}}}};
  stored.profile.speeds.machine = {0.125, 2.5};
  stored.profile.speeds.network = {0.25, 1.5};
  stored.profile.speeds.optimizer_elements_per_s = 5e8;
  stored.measured_at = "2026-11-23T02:10:57Z";
  stored.probe_ms = 0.125;
  stored.runs_ratio = 1.5;
  stored.quiet = {{"llm.block", {2, 1}, 7, 2, 3}};
  return stored;
}

TEST_CASE("a profile file gives back every bit", "[engine]") {
  const data::TempFolder folder;
  const auto path = folder.path() / "deep" / "profile.json";
  REQUIRE(save_profile(path, stored_example()).ok());
  CHECK((load_profile(path).value() == stored_example()));
}

TEST_CASE("a profile file of before quietness was known is still read", "[engine]") {
  // As an older version wrote it: without the keys of the file, and those of its kinds.
  auto old = stored_example();
  old.measured_at.clear();
  old.quiet.clear();
  const auto text = to_json(old);
  for (const char* key : {"measured_at", "disturbed_share", "probe_ms", "runs_ratio", "\"runs\""})
    CHECK_THAT(text, !ContainsSubstring(key));
  old.probe_ms = 0;
  old.runs_ratio = 1;
  CHECK((profile_from_json(text, "p.json").value() == old));
  CHECK(busy_warning(old).empty());

  const auto now = to_json(stored_example());
  CHECK_THAT(now, ContainsSubstring("\"disturbed_share\": 0.285714"));
  CHECK_THAT(now, ContainsSubstring("\"repeated\": 3"));
  CHECK_THAT(busy_warning(stored_example()),
             ContainsSubstring("29 % of the runs") && ContainsSubstring("--force"));
}

TEST_CASE("a disturbed kind weighs as much as its time", "[engine]") {
  auto stored = stored_example();
  auto& kinds = stored.profile.profiles;
  kinds.push_back(kinds[0]);
  kinds[0].points = {{16, {2, 2, 2, 0}, {2, 1, 0, 0}}};  // 9 ms.
  kinds[1].kind = "llm.embed";
  kinds[1].points = {{16, {0.5, 0, 0.5, 0}, {}}};  // 1 ms.
  stored.quiet = {{"llm.block", {2, 1}, 3, 3, 7}, {"llm.embed", {2, 1}, 700, 0, 0}};
  CHECK(disturbed_share(stored) == Approx(0.9));
  CHECK(repeated(stored) == 7);
}

TEST_CASE("local nodes reach each other by the machine, others by the network", "[engine]") {
  scheduler::DeviceSpeeds speeds;
  speeds.machine = {0.125, 2.5};
  speeds.network = {0.25, 1.5};
  job::Cluster cluster;
  cluster.nodes = 3;
  cluster.local_nodes = 3;
  CHECK(speeds_for(cluster, speeds).network == speeds.machine);
  cluster.local_nodes = 1;
  CHECK(speeds_for(cluster, speeds) == speeds);
}

TEST_CASE("a damaged profile file names the field", "[engine][errors]") {
  const auto text = to_json(stored_example());
  const auto with = [&](const std::string& old, const std::string& replacement) {
    auto changed = text;
    const auto at = changed.find(old);
    REQUIRE(at != std::string::npos);
    changed.replace(at, old.size(), replacement);
    const auto read = profile_from_json(changed, "p.json");
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
    CHECK(read.error().where == "p.json");
    return read.error().message;
  };
  CHECK_THAT(with("\"format\": 1", "\"format\": 9"), ContainsSubstring("is 9"));
  CHECK_THAT(with("\"tokens\": 16", "\"tokens\": -16"), ContainsSubstring("kinds[0].points[0]"));
  CHECK_THAT(with("modelled", "guessed"), ContainsSubstring("'guessed'"));
  CHECK_THAT(with("\"threads\"", "\"thread\""), ContainsSubstring("key.threads is missing"));
  CHECK_THAT(with("\"disturbed\": 2", "\"disturbed\": -2"),
             ContainsSubstring("kinds[0].runs.disturbed"));
  CHECK_THAT(with("\"runs_ratio\": 1.5", "\"runs_ratio\": 0"), ContainsSubstring("runs_ratio"));
  CHECK_THAT(with("{", "["), ContainsSubstring("not JSON"));
  CHECK(load_profile("/nowhere/p.json").error().code == Errc::not_found);
  CHECK(save_profile("/proc/none/p.json", stored_example()).error().code == Errc::io_failed);
}

TEST_CASE("a mismatch names what changed", "[engine]") {
  const auto key = stored_example().key;
  CHECK(mismatch(key, key).empty());
  const auto why = [&](auto field, auto value) {
    auto other = key;
    other.*field = value;
    return mismatch(other, key);
  };
  CHECK_THAT(why(&ProfileKey::model, "11"), ContainsSubstring("layers"));
  CHECK_THAT(why(&ProfileKey::device, "gpu"), ContainsSubstring("the device is gpu"));
  CHECK_THAT(why(&ProfileKey::software, "x"), ContainsSubstring("software"));
  CHECK_THAT(why(&ProfileKey::dtype, "bf16"), ContainsSubstring("the dtype is bf16"));
  CHECK_THAT(why(&ProfileKey::threads, 4), ContainsSubstring("4, the profile is of 2"));
}

TEST_CASE("a profile is measured once and found again", "[engine]") {
  ProfiledJob job;
  const auto first = obtain_profile(job.setup, job.options).value();
  CHECK_FALSE(first.reused);
  CHECK_THAT(first.reason, ContainsSubstring("no profile of this job yet"));
  CHECK(first.file.parent_path() == job.folder.path() / "profiles");
  const auto again = obtain_profile(job.setup, job.options).value();
  CHECK(again.reused);
  CHECK((again.profile == first.profile));

  // Every layer has a kind, so that costs can be had; training costs time and memory.
  const auto costs = scheduler::CostModel::create(job.setup.model, first.profile).value();
  const LayerId block{job.setup.model.llm(), 1};
  CHECK(costs.cost(block, 48).value().forward_ms > 0);
  CHECK(costs.cost(block, 48).value().input_grad_ms > 0);
  CHECK(costs.cost(block, 48).value().activations > Bytes{48 * 16 * 8});
  for (const auto& link :
       {first.profile.speeds.node, first.profile.speeds.machine, first.profile.speeds.network})
    CHECK((link.latency_ms > 0 && link.gigabytes_per_s > 0));
  CHECK(first.profile.speeds.optimizer_elements_per_s > 0);

  // Another dtype makes another key, and the reason says so.
  auto narrow = job.setup;
  narrow.job.train.dtype = Dtype::fp32;
  narrow.layers.dtype = at::kFloat;
  CHECK_THAT(obtain_profile(narrow, job.options).value().reason,
             ContainsSubstring("the dtype is fp32"));
}

/// The tiny job with an audio encoder, so that there is a module of every family.
job::Job job_of_all_families() {
  auto job = tiny_job_with_audio();
  job.parallel = {};
  return job;
}

/// A change of one thing in a job.
struct Change {
  const char* what;
  std::function<void(job::Job&)> apply;
};

/// Changes one field of the configuration of module `index`.
template <class Config, class Value>
Change config_change(const char* what, std::size_t index, Value Config::*field,
                     std::type_identity_t<Value> value) {
  return {what, [index, field, value](job::Job& job) {
            job.modules[index].config.edit<Config>().*field = value;
          }};
}

TEST_CASE("whatever shapes a layer makes another key", "[engine]") {
  // Modules: 0 audio, 1 its projector, 2 vision, 3 its projector, 4 llm.
  const std::vector<Change> changes{
      config_change("audio layers", 0, &models::AudioConfig::encoder_layers, 2),
      config_change("audio width", 0, &models::AudioConfig::d_model, 32),
      config_change("audio heads", 0, &models::AudioConfig::encoder_attention_heads, 4),
      config_change("audio feed-forward", 0, &models::AudioConfig::encoder_ffn_dim, 32),
      config_change("mel bins", 0, &models::AudioConfig::num_mel_bins, 128),
      config_change("audio positions", 0, &models::AudioConfig::max_source_positions, 750),
      config_change("projector between", 1, &models::ProjectorConfig::hidden_size, 48),
      config_change("vision depth", 2, &models::VisionConfig::depth, 2),
      config_change("vision width", 2, &models::VisionConfig::embed_dim, 32),
      config_change("vision heads", 2, &models::VisionConfig::num_heads, 4),
      config_change("vision feed-forward", 2, &models::VisionConfig::mlp_ratio, 2.0),
      config_change("vision output", 2, &models::VisionConfig::hidden_size, 32),
      config_change("patch size", 2, &models::VisionConfig::patch_size, 28),
      config_change("merged patches", 2, &models::VisionConfig::spatial_merge_size, 1),
      config_change("frames of a patch", 2, &models::VisionConfig::temporal_patch_size, 1),
      config_change("colours", 2, &models::VisionConfig::in_channels, 1),
      config_change("llm depth", 4, &models::LlmConfig::num_hidden_layers, 3),
      config_change("llm width", 4, &models::LlmConfig::hidden_size, 32),
      config_change("llm feed-forward", 4, &models::LlmConfig::intermediate_size, 32),
      config_change("llm heads", 4, &models::LlmConfig::num_attention_heads, 4),
      config_change("llm key-value heads", 4, &models::LlmConfig::num_key_value_heads, 2),
      config_change("llm head width", 4, &models::LlmConfig::head_dim, 16),
      config_change("vocabulary", 4, &models::LlmConfig::vocab_size, 400),
      {"name of a module", [](job::Job& job) { job.modules[2].name = "sight"; }}};
  const auto wanted = setup_of(job_of_all_families());
  std::set<std::string> models{profile_key(wanted).model};
  for (const auto& change : changes) {
    CAPTURE(change.what);
    auto job = job_of_all_families();
    change.apply(job);
    auto key = profile_key(setup_of(job));
    CHECK(models.insert(key.model).second);
    CHECK_FALSE(mismatch(profile_key(wanted), key).empty());
    key.model = profile_key(wanted).model;
    CHECK((key == profile_key(wanted)));
  }
}

TEST_CASE("dtype and operator threads make another key", "[engine]") {
  const auto key_with = [](Dtype dtype, std::int32_t threads) {
    auto job = job_of_all_families();
    job.train.dtype = dtype;
    job.cluster.threads_per_device = threads;
    return profile_key(setup_of(job));
  };
  const auto key = key_with(Dtype::fp64, 1);
  std::set<std::string> dtypes;
  for (const auto dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64})
    dtypes.insert(key_with(dtype, 1).dtype);
  CHECK(dtypes == std::set<std::string>{"bf16", "fp32", "fp64"});
  auto threaded = key_with(Dtype::fp64, 3);
  CHECK(threaded.threads == 3);
  threaded.threads = key.threads;
  CHECK((threaded == key));
  // Of this machine and this program.
  CHECK_THAT(key.device,
             ContainsSubstring(std::to_string(std::thread::hardware_concurrency()) + " cores"));
  CHECK_THAT(key.software, ContainsSubstring(std::string("LibTorch ") + TORCH_VERSION));
}

TEST_CASE("what layers cost the same with leaves the key alone", "[engine]") {
  const std::vector<Change> changes{
      {"frozen modules",
       [](job::Job& job) {
         for (auto& module : job.modules) module.freeze = module.kind != ModuleKind::llm;
       }},
      {"learning rates", [](job::Job& job) { job.modules[0].lr = 0.5, job.optimizer.lr = 0.25; }},
      {"initial weights",
       [](job::Job& job) { job.modules[0].initializer_range = 0.5, job.job.seed = 99; }},
      config_change("norms", 4, &models::LlmConfig::rms_norm_eps, 1e-3),
      config_change("positions", 4, &models::LlmConfig::rope_theta, 5e5),
      // The head then uses another layer's tensor, of the same shape.
      config_change("tied head", 4, &models::LlmConfig::tie_word_embeddings, true),
      {"name of the job", [](job::Job& job) { job.job.name = "other"; }},
      {"data",
       [](job::Job& job) {
         job.data.sources.push_back({"llava", "other.json", {}});
         job.data.max_pixels = 50176, job.data.max_seq_len = 77, job.data.shuffle = false;
       }},
      {"batch and length",
       [](job::Job& job) {
         job.train.global_batch_size = 64, job.train.microbatches = 8;
         job.train.duration.amount = 1000;
       }},
      {"layout",
       [](job::Job& job) {
         job.cluster.nodes = job.cluster.local_nodes = 2;
         job.cluster.devices_per_node = 3;
         job.parallel.modules["llm"].pp = 2;
       }},
      {"schedule and policy",
       [](job::Job& job) { job.scheduler.schedule = "gpipe", job.balancer.policy = "auto"; }}};
  const auto wanted = profile_key(setup_of(job_of_all_families()));
  for (const auto& change : changes) {
    CAPTURE(change.what);
    auto job = job_of_all_families();
    change.apply(job);
    CHECK((profile_key(setup_of(job)) == wanted));
  }
}

TEST_CASE("a profile is stale once any field of its key differs", "[engine]") {
  ProfiledJob job;
  job.options.file = job.folder.path() / "mine.json";
  const auto key = profile_key(job.setup);
  auto stored = stored_example();
  stored.key = key;
  REQUIRE(save_profile(job.options.file, stored).ok());
  REQUIRE(obtain_profile(job.setup, job.options).value().reused);
  std::set<std::string> hashes{hash_of(key)};
  const auto stale = [&](auto field, auto value, const std::string& says) {
    stored.key = key;
    stored.key.*field = value;
    CHECK(hashes.insert(hash_of(stored.key)).second);
    REQUIRE(save_profile(job.options.file, stored).ok());
    const auto refused = obtain_profile(job.setup, job.options);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::invalid_argument);
    CHECK_THAT(refused.error().message, ContainsSubstring(says));
  };
  stale(&ProfileKey::model, "00", "layers are not those of the profile");
  stale(&ProfileKey::device, "abacus", "the profile is of abacus");
  stale(&ProfileKey::software, "LibTorch 0", "the profile is of LibTorch 0");
  stale(&ProfileKey::dtype, "fp8", "the profile is of fp8");
  stale(&ProfileKey::threads, key.threads + 1, "the number of threads");
  // A profile at the default place is found by the whole key.
  CHECK(default_profile_path(job.setup).filename() == "tiny-" + hash_of(key) + ".json");
}

TEST_CASE("a named profile of something else is refused, not overwritten", "[engine][errors]") {
  ProfiledJob job;
  job.options.file = job.folder.path() / "mine.json";
  REQUIRE(save_profile(job.options.file, stored_example()).ok());
  const auto refused = obtain_profile(job.setup, job.options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK((load_profile(job.options.file).value() == stored_example()));
  job.options.force = true;
  CHECK(obtain_profile(job.setup, job.options).value().reason == "asked for");
  job.options.force = false;
  CHECK(obtain_profile(job.setup, job.options).value().reused);
}

TEST_CASE("every kind of every family can be measured in every dtype", "[engine][property]") {
  auto job = tiny_job();
  job.train.dtype = GENERATE(Dtype::fp32, Dtype::bf16, Dtype::fp64);
  ModuleConfig audio{"audio", ModuleKind::encoder, "whisper", "llm", false, {}, 0.02, {}};
  audio.config = models::AudioConfig{
      .encoder_layers = 1, .d_model = 16, .encoder_attention_heads = 2, .encoder_ffn_dim = 24};
  job.modules.insert(job.modules.begin(), audio);
  const auto setup = prepare(job).value();
  const auto kinds = layer_kinds(setup);
  // Audio embed, block, norm; vision embed, block, merger; projector; llm embed, block, head.
  REQUIRE(kinds.size() == 10);
  QuietWatch watch(machine_clocks(), 100);
  const auto profiles = profile_layers(setup, {0.5, 1, 64, {}}, watch).value();
  REQUIRE(profiles.size() == kinds.size());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const auto& kind = kinds[k];
    const auto& profile = profiles[k];
    CAPTURE(kind.name);
    CHECK(profile.kind == kind.name);
    REQUIRE(profile.points.size() >= 2);
    CHECK(profile.parameters > Bytes{});
    const bool attends = kind.name.ends_with(".block");
    // At some size: a difference of two short times may come out as nothing on a busy machine.
    CHECK(std::ranges::any_of(profile.points, [](const auto& point) {
            return point.attention.forward_ms > 0;
          }) == attends);
    CHECK(std::ranges::any_of(profile.points, [](const auto& point) {
            return point.linear.input_grad_ms > 0;
          }) == !kind.name.ends_with(".embed"));
  }
}

}  // namespace
}  // namespace troupe::engine
