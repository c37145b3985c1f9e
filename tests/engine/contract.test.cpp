#include "tests/torch_catch.hpp"

#include "engine/contract/contract.hpp"

#include <catch2/generators/catch_generators.hpp>

#include "engine/contract/made_samples.hpp"
#include "engine/execution/stage_filter.hpp"
#include "tests/engine/audio_job.hpp"
#include "tests/engine/faulty_family.hpp"

namespace troupe::engine {
namespace {

ContractOptions by_layer() {
  ContractOptions options;
  options.bench.is_by_layer = true;
  return options;
}

std::vector<StageVerdict> check(const job::Job& job, const ContractOptions& options) {
  auto verdicts = check_contract(job, options);
  REQUIRE(verdicts.ok());
  return std::move(verdicts).value();
}

void expect_kept(const std::vector<StageVerdict>& verdicts) {
  REQUIRE_FALSE(verdicts.empty());
  for (const StageVerdict& verdict : verdicts) {
    for (const Breach& breach : verdict.breaches)
      UNSCOPED_INFO(verdict.stage << ": " << breach.promise << ": " << breach.found);
    CHECK(verdict.keeps_all());
    CHECK(verdict.kept.size() >= 7);
  }
}

bool keeps(const StageVerdict& verdict, const std::string& promise) {
  return std::ranges::find(verdict.kept, promise) != verdict.kept.end();
}

/// The promises that the tiny job's projector breaks with this fault, each once, in order.
std::string broken_by(const std::string& fault) {
  register_faulty_family();
  job::Job job = tiny_job();
  job.modules[1].family = "faulty";
  job.modules[1].config = FaultyConfig{fault};
  ContractOptions options = by_layer();
  options.module = "projector";
  const auto verdicts = check(job, options);
  REQUIRE(verdicts.size() == 1);
  std::string list, last;
  for (const Breach& breach : verdicts.front().breaches) {
    UNSCOPED_INFO(breach.promise << ": " << breach.found);
    if (breach.promise != last) list += (list.empty() ? "" : ", ") + breach.promise;
    last = breach.promise;
  }
  return list;
}

TEST_CASE("built-in families keep what stages promise, whole and layer by layer", "[engine]") {
  ContractOptions options;
  options.bench.is_by_layer = GENERATE(false, true);
  job::Job job = tiny_job_with_audio();
  auto& llm = job.modules.back();
  auto config = llm.config.as<models::LlmConfig>();
  config.tie_word_embeddings = options.bench.is_by_layer;
  llm.config = config;
  const auto verdicts = check(job, options);
  expect_kept(verdicts);
  for (const StageVerdict& verdict : verdicts) CHECK(keeps(verdict, "moved"));
  CHECK(keeps(verdicts.front(), "frozen"));  // Whisper's positions are a constant.
  CHECK(keeps(verdicts.front(), "offload"));
  CHECK_FALSE(keeps(verdicts.back(), "offload"));  // No plan puts away what the llm keeps.
}

TEST_CASE("frozen modules keep what stages promise", "[engine]") {
  job::Job job = tiny_job_with_audio();
  for (ModuleConfig& module : job.modules) module.freeze = module.kind != ModuleKind::projector;
  const auto verdicts = check(job, by_layer());
  expect_kept(verdicts);
  for (const StageVerdict& verdict : verdicts) {
    INFO(verdict.stage);
    const bool is_projector = verdict.kind.find("projector") != std::string::npos;
    CHECK(keeps(verdict, "moved") == is_projector);
    CHECK(keeps(verdict, "frozen") != is_projector);
  }
}

/// Puts parts away and gets them back as the stage in it does, and says something else of it.
struct Mover final : StageFilter {
  Mover(std::unique_ptr<StageProgram> inner, std::string fault)
      : StageFilter(std::move(inner)), fault(std::move(fault)) {}
  Result<Bytes> offload(PartKey part, Device& device) override {
    auto went = StageFilter::offload(part, device);
    if (fault == "says more" && went.ok()) return went.value() + Bytes{8};
    return went;
  }
  Result<Bytes> fetch(PartKey part, Device& device) override {
    auto came = StageFilter::fetch(part, device);
    if (fault == "brings less" && came.ok()) return came.value() - Bytes{8};
    return came;
  }
  const std::string fault;
};

TEST_CASE("parts come back from host memory as they went", "[engine][errors]") {
  const auto bench = StageBench::create(tiny_job(), {});
  REQUIRE(bench.ok());
  const StageId encoder{0};
  const auto inputs = bench.value()->draw_inputs(encoder);
  const auto round = [&](const std::string& fault, bool is_offloaded) {
    const auto state = bench.value()->state(encoder);
    REQUIRE(state.ok());
    auto inner = bench.value()->make(encoder, state.value());
    REQUIRE(inner.ok());
    Mover stage(std::move(inner).value(), fault);
    return bench.value()->round(stage, encoder, {.is_offloaded = is_offloaded}, inputs);
  };
  REQUIRE(bench.value()->offloads(encoder));
  CHECK_FALSE(bench.value()->offloads(StageId{1}));
  const auto plain = round("none", false), away = round("none", true);
  REQUIRE((plain.ok() && away.ok()));
  CHECK(same_bits(plain.value(), away.value()));
  CHECK(away.value().left == Bytes{});
  const auto more = round("says more", true), less = round("brings less", true);
  REQUIRE_FALSE(more.ok());
  CHECK(more.error().message.find("offload of microbatch 0: `activations` goes from") == 0);
  REQUIRE_FALSE(less.ok());
  CHECK(less.error().message.find("fetch of microbatch 0: ") == 0);
  CHECK(less.error().message.find(" bytes come back of ") != std::string::npos);
}

TEST_CASE("one layer of each kind stands for those that are alike", "[engine]") {
  ContractOptions options = by_layer();
  options.module = "llm";
  const auto verdicts = check(tiny_job(), options);
  // By hand: embedding, two blocks, head.
  REQUIRE(verdicts.size() == 3);
  CHECK(verdicts[0].kind == "llm.embed");
  CHECK(verdicts[1].kind == "llm.block");
  CHECK(verdicts[1].stage == "llm 1");
  CHECK(verdicts[1].alike == 2);
  CHECK(verdicts[2].kind == "llm.head");
  options.module = "lm";
  CHECK(check_contract(tiny_job(), options).error().code == Errc::not_found);
}

TEST_CASE("a stage that does not fit is named and not tried", "[engine]") {
  ContractOptions options;
  options.memory = Bytes{1};
  const auto verdicts = check(tiny_job(), options);
  REQUIRE(verdicts.size() == 2);
  for (const StageVerdict& verdict : verdicts) {
    CHECK(verdict.kept.empty());
    CHECK(verdict.not_tried.find("--layers") != std::string::npos);
    CHECK_FALSE(verdict.keeps_all());
  }
}

TEST_CASE("samples are made with every medium and without", "[engine]") {
  const JobSetup setup = prepare(tiny_job_with_audio()).value();
  const auto samples = made_samples(setup.data, 5);
  REQUIRE(samples.size() == 5);
  std::vector<std::size_t> pictures, windows;
  for (const auto& sample : samples) {
    pictures.push_back(sample.images.at(0).size());
    windows.push_back(sample.audio.at(0).size());
    CHECK(sample.trained_tokens > 0);
  }
  CHECK(pictures == std::vector<std::size_t>{1, 0, 2, 1, 1});
  CHECK(windows == pictures);
  CHECK((samples == made_samples(setup.data, 5)));  // In brackets: samples have no text.
}

TEST_CASE("each fault of a layer has the name of its promise", "[engine]") {
  CHECK(broken_by("none") == "");
  CHECK(broken_by("chooses") == "");
  CHECK(broken_by("steep") == "gradients");
  CHECK(broken_by("writes") == "frozen");
  CHECK(broken_by("asks") == "frozen");
  CHECK(broken_by("copies") == "gradients, moved");
}

}  // namespace
}  // namespace troupe::engine
