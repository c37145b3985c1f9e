#include "engine/profile_run.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/profile_layers.hpp"
#include "scheduler/cost_model.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

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
  stored.profile.speeds.network = {0.25, 1.5};
  stored.profile.speeds.optimizer_elements_per_s = 5e8;
  return stored;
}

TEST_CASE("a profile file gives back every bit", "[engine]") {
  const data::TempFolder folder;
  const auto path = folder.path() / "deep" / "profile.json";
  REQUIRE(save_profile(path, stored_example()).ok());
  CHECK((load_profile(path).value() == stored_example()));
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
  CHECK(first.profile.speeds.node.gigabytes_per_s > 0);
  CHECK(first.profile.speeds.optimizer_elements_per_s > 0);

  // Freezing leaves the key alone, another dtype does not, and the reason says so.
  auto frozen = job.setup;
  frozen.job.modules[0].freeze = true;
  CHECK((profile_key(frozen) == profile_key(job.setup)));
  auto narrow = job.setup;
  narrow.job.train.dtype = Dtype::fp32;
  narrow.layers.dtype = at::kFloat;
  CHECK_THAT(obtain_profile(narrow, job.options).value().reason,
             ContainsSubstring("the dtype is fp32"));
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
  job.setup.job.cluster.device = "cuda";
  CHECK(obtain_profile(job.setup, job.options).error().code == Errc::unavailable);
}

TEST_CASE("every kind of every family can be measured in every dtype", "[engine][property]") {
  auto job = tiny_job();
  job.train.dtype = GENERATE(Dtype::fp32, Dtype::bf16, Dtype::fp64);
  ModuleConfig audio{"audio", ModuleKind::encoder, "whisper", "llm", false, {}, 0.02, {}};
  audio.config = AudioConfig{
      .encoder_layers = 1, .d_model = 16, .encoder_attention_heads = 2, .encoder_ffn_dim = 24};
  job.modules.insert(job.modules.begin(), audio);
  const auto setup = prepare(job).value();
  const auto kinds = layer_kinds(setup);
  // Audio embed, block, norm; vision embed, block, merger; projector; llm embed, block, head.
  REQUIRE(kinds.size() == 10);
  const auto profiles = profile_layers(setup, {0.5, 1, 64, {}}).value();
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
