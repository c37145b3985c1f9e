#include "tests/torch_catch.hpp"

#include "engine/contract/contract.hpp"

#include <ATen/ops/full.h>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <limits>
#include <tuple>

#include "engine/contract/made_samples.hpp"
#include "engine/contract/slices.hpp"
#include "engine/contract/stage_round.hpp"
#include "engine/execution/plan_slices.hpp"
#include "engine/execution/stage_filter.hpp"
#include "tests/engine/audio_job.hpp"
#include "tests/engine/faulty_job.hpp"

namespace troupe::engine {
namespace {

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
  for (const StageVerdict& verdict : verdicts)
    for (const auto* promise :
         {"gradient copies", "hash", "moved", "packing", "parts", "pieces", "shown", "slice"})
      CHECK(keeps(verdict, promise));
  CHECK(keeps(verdicts.front(), "frozen"));  // Whisper's positions are a constant.
  // The encoders have three layers each, the llm four.
  for (const StageVerdict& verdict : verdicts)
    CHECK(keeps(verdict, "cut") == !options.bench.is_by_layer);
  CHECK_FALSE(keeps(verdicts.front(), "built-in"));  // No kind of a user's runs it.
  CHECK(verdicts.front().stage_kind.empty());
  for (const auto* promise : {"moments", "offload"}) {
    CHECK(keeps(verdicts.front(), promise));
    CHECK_FALSE(keeps(verdicts.back(), promise));  // No plan puts away what the llm keeps.
  }
}

TEST_CASE("frozen modules keep what stages promise", "[engine]") {
  job::Job job = tiny_job_with_audio();
  for (ModuleConfig& module : job.modules) module.freeze = module.kind != ModuleKind::projector;
  const auto verdicts = check(job, by_layer());
  expect_kept(verdicts);
  for (const StageVerdict& verdict : verdicts) {
    INFO(verdict.stage);
    const bool is_projector = verdict.kind.find("projector") != std::string::npos;
    for (const auto* promise : {"gradient copies", "hash", "moments", "moved"})
      CHECK(keeps(verdict, promise) == is_projector);
    CHECK(keeps(verdict, "frozen") != is_projector);
  }
}

TEST_CASE("an llm that attends by modality keeps what stages promise", "[engine]") {
  job::Job job = tiny_job_with_audio();
  job.modules.back().attention = AttentionRule::modality;
  ContractOptions options;
  options.module = "llm";
  const auto verdicts = check(job, options);
  expect_kept(verdicts);
  for (const auto* promise : {"packing", "parts", "pieces", "cut"})
    CHECK(keeps(verdicts.front(), promise));
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

TEST_CASE("layers of one kind that are not alike are all tried", "[engine]") {
  ContractOptions options = by_layer();
  options.module = "projector";
  // By hand: one has 24 x 16 weights, the other 16 x 16, and where it pretends, the first one's
  // kind and work.
  for (const auto* fault : {"widens", "pretends"}) {
    const auto verdicts = check(faulty_job(fault), options);
    REQUIRE(verdicts.size() == 2);
    for (const StageVerdict& verdict : verdicts) CHECK(verdict.alike == 1);
    const bool is_one_kind = verdicts.front().kind == verdicts.back().kind;
    CHECK(is_one_kind == (fault == std::string("pretends")));
    // A cut between them shows a column too much.
    CHECK(keeps(verdicts.front(), "rows") == (fault == std::string("pretends")));
  }
}

TEST_CASE("a module of several layers is tried as two stages", "[engine][errors]") {
  ContractOptions options;
  options.module = "projector";
  const auto verdicts = check(faulty_job("widens"), options);
  REQUIRE(verdicts.size() == 1);
  CHECK_FALSE(keeps(verdicts.front(), "cut"));
  REQUIRE_FALSE(verdicts.front().breaches.empty());
  for (const Breach& breach : verdicts.front().breaches) CHECK(breach.promise == "cut");
  const Breach& first = verdicts.front().breaches.front();
  INFO(first.found);
  CHECK(first.found.starts_with("projector 0 by itself: rows are "));
  CHECK(first.found.ends_with(" x 17"));  // The llm has 16 columns.
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

TEST_CASE("a batch is cut for a part that waits for a later microbatch of the llm", "[engine]") {
  const auto made = StageBench::create(tiny_job_with_audio(), {});
  REQUIRE(made.ok());
  const StageBench& bench = *made.value();
  const IterationPlan* deferred = bench.iteration(Cut::deferred);
  REQUIRE(deferred != nullptr);
  // By hand: 0, 2 and 3 have both media, and are one of each group; 1 has text alone.
  const auto samples_in = [](const Part& part) { return part.samples; };
  const auto& encoders = deferred->microbatches.front();
  REQUIRE(encoders.size() == 2);
  REQUIRE(encoders[0].parts.size() == 2);
  CHECK(samples_in(encoders[0].parts[0]) == std::vector<std::int32_t>{0, 1});
  CHECK(samples_in(encoders[0].parts[1]) == std::vector<std::int32_t>{2});
  CHECK(samples_in(encoders[1].parts[0]) == std::vector<std::int32_t>{3});
  const auto& llm = deferred->microbatches.back();
  REQUIRE(llm.size() == 2);
  CHECK(samples_in(llm[1].parts[0]) == std::vector<std::int32_t>{2, 3});
  // Rows of both encoders' microbatches enter it, from the second part of the first.
  auto traffic = traffic_of(bench.plan(), *deferred, StageId{2});
  CHECK(traffic.incoming[{MicrobatchId{1}, PartId{0}}].size() == 4);
  CHECK(traffic_of(bench.plan(), *deferred, StageId{0}).parts.size() == 3);
  // Of a sample the same rows come, whatever the cut.
  const auto alone = bench.draw_inputs(StageId{2}, Cut::alone);
  const auto packed = bench.draw_inputs(StageId{2});
  const auto sum_of_rows = [](const StageRows& inputs) {
    double sum = 0;
    for (const auto& [id, rows] : inputs.rows) sum += rows.sum().item<double>();
    return sum;
  };
  CHECK(alone.rows.size() > packed.rows.size());
  CHECK(std::abs(sum_of_rows(alone) - sum_of_rows(packed)) < 1e-9);
  // Where less than two samples have media, no part waits.
  ContractOptions few;
  few.bench.samples = 2;
  const auto two = StageBench::create(tiny_job(), few.bench);
  REQUIRE(two.ok());
  CHECK(two.value()->iteration(Cut::deferred) == nullptr);
  CHECK(two.value()->iteration(Cut::alone) != nullptr);
}

TEST_CASE("a stage's node numbers its samples anew in a larger batch", "[engine]") {
  const auto made = StageBench::create(tiny_job(), {});
  REQUIRE(made.ok());
  const StageBench& bench = *made.value();
  const auto doubled = bench.doubled();
  REQUIRE(doubled.ok());
  const StageBench& both = *doubled.value();
  const IterationPlan& whole = both.iteration();
  CHECK(whole.trained_tokens == 2 * bench.iteration().trained_tokens);
  const PlanSlices slices(whole, both.plan());
  for (std::size_t s = 0; s < bench.plan().stages.size(); ++s) {
    const StageId id{s};
    CHECK((both.plan().at(id).runs == bench.plan().at(id).runs));
    const IterationPlan slice = slices.of(both.plan().node_of(id));
    // By hand: 1, 3, 5 and 7 of the whole batch.
    REQUIRE(slice.samples.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK((slice.samples[i] == whole.samples[2 * i + 1]));
      CHECK(slice.samples[i].id == bench.iteration().samples[i].id);
    }
    const auto rounds = sliced_rounds(bench, id);
    REQUIRE(rounds.ok());
    CHECK_FALSE(rounds.value().slice.groups.empty());
    CHECK(same_bits(rounds.value().whole, rounds.value().slice));
  }
}

TEST_CASE("each fault of a stage has the name of its promise", "[engine]") {
  CHECK(broken_by_stage("") == "");
  CHECK(broken_by_stage("by microbatch") == "parts");
  for (const auto* fault : {"by number", "by place", "by count"})
    CHECK(broken_by_stage(fault) == "slice");
  // Who looks sees what was not doubled.
  CHECK(broken_by_stage("doubles") == "built-in, shown");
  CHECK(broken_by_stage("owes") == "abandon");
  CHECK(broken_by_stage("shows nothing") == "");  // Whether it does is its affair.
  CHECK(broken_by_stage("shows others") == "shown");
  CHECK(broken_by_stage("shows on") == "shown");
  // No number, where each sample is alone. What it adds to the loss the engine's own stage lacks.
  CHECK(broken_by_stage("voids") == "packing, parts, pieces");
  CHECK(broken_by_stage("adds a void") == "built-in, packing, parts, pieces");
}

TEST_CASE("what is no number differs by more than every number", "[engine]") {
  constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  const auto rows = [](double value) {
    return std::vector<at::Tensor>{at::full({2}, 1.0, at::kDouble),
                                   at::full({3}, value, at::kDouble)};
  };
  // By hand: half of 2.
  CHECK(difference(rows(2), rows(1)) == 0.5);
  CHECK(std::isinf(difference(rows(kNoNumber), rows(1))));
  CHECK(std::isinf(difference(rows(1), rows(kNoNumber))));
  StageOutcome ours, theirs;
  ours.losses = theirs.losses = {4, 2};
  CHECK(difference(ours, theirs) == 0);
  theirs.losses.front() = kNoNumber;
  CHECK(std::isinf(difference(ours, theirs)));
  CHECK(std::isinf(difference(theirs, ours)));
}

TEST_CASE("a breach says where what differs is no number", "[engine][errors]") {
  ContractOptions options = by_layer();
  options.module = "projector";
  stage_fault() = "voids";
  const auto verdicts = check(faulty_job("none"), options);
  stage_fault().clear();
  REQUIRE(verdicts.size() == 1);
  REQUIRE_FALSE(verdicts.front().breaches.empty());
  const Breach& first = verdicts.front().breaches.front();
  CHECK(first.promise == "packing");
  CHECK(first.found ==
        "samples beside each other: what they give differs by no finite number (a value that is "
        "none, or one too many) from what each gives alone");
}

TEST_CASE("what a stage hands on lies in memory as its receiver takes it", "[engine][errors]") {
  using Case = std::pair<std::string, std::string>;
  for (const auto& [fault, found] :
       {Case{"gives none", "rows are not there"}, Case{"gives columns", "rows are not contiguous"},
        Case{"gives floats", "rows hold Float instead of Double"},
        Case{"gives a graph", "rows are not detached from autograd"}}) {
    const StageVerdict verdict = verdict_on_stage(fault);
    REQUIRE(verdict.breaches.size() == 1);
    CHECK(verdict.breaches.front().promise == "rows");
    CHECK(verdict.breaches.front().found == found);
  }
}

TEST_CASE("what a stage throws in any call is told with its promise", "[engine][errors]") {
  using Case = std::tuple<std::string, std::string, std::string>;
  const auto [call, promise, found] = GENERATE(
      Case{"accept_rows", "rows", "accept_rows of microbatch 0: throws: too tired"},
      Case{"accept_gradient", "rows", "accept_gradient of microbatch 0: throws: too tired"},
      Case{"losses", "rows", "losses: throws: too tired"},
      Case{"auxiliary", "rows", "auxiliary: throws: too tired"},
      Case{"state", "rows", "state: throws: too tired"},
      Case{"activations", "rows", "activations: throws: too tired"},
      // Slopes are the first rounds without a backward.
      Case{"abandon", "gradients", "abandon: throws: too tired"},
      Case{"show_to", "shown", "show_to: throws: too tired"},
      Case{"parameters", "rows",
           "`parameters`, `state` or `abandon` beside a round throws: too tired"});
  CAPTURE(call);
  ContractOptions options = by_layer();
  options.module = "projector";
  stage_fault() = "throws in " + call;
  const auto verdicts = check(faulty_job("none"), options);
  stage_fault().clear();
  REQUIRE(verdicts.size() == 1);
  REQUIRE_FALSE(verdicts.front().breaches.empty());
  const Breach& first = verdicts.front().breaches.front();
  CHECK(first.promise == promise);
  CHECK(first.found == found);
}

TEST_CASE("each fault of a layer has the name of its promise", "[engine]") {
  CHECK(broken_by("none") == "");
  CHECK(broken_by("chooses") == "");
  CHECK(broken_by("steep") == "gradients");
  CHECK(broken_by("writes") == "frozen");
  CHECK(broken_by("asks") == "frozen");
  CHECK(broken_by("copies") == "gradients, moved");
  // Pieces have neighbours too.
  CHECK(broken_by("mixes") == "packing, pieces");
  CHECK(broken_by("adds") == "packing, pieces");
}

}  // namespace
}  // namespace troupe::engine
