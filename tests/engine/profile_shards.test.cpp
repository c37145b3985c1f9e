#include "engine/profiling/profile_shards.hpp"
#include "engine/profiling/profile_run.hpp"
#include "models/whisper/family.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::engine {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using scheduler::CostOrigin;

LayerKind kind_of(const JobSetup& setup, const std::string& name) {
  const auto kinds = layer_kinds(setup);
  return *std::find_if(kinds.begin(), kinds.end(),
                       [&](const LayerKind& kind) { return kind.name == name; });
}

/// A whole layer that takes no time, so that a shard's time is what is measured and modelled here.
scheduler::LayerProfile nothing_at(std::vector<TokenCount> sizes, Bytes parameters) {
  scheduler::LayerProfile whole{"", {}, CostOrigin::measured, parameters, {}};
  for (const auto tokens : sizes) whole.points.push_back({tokens, {}, {}});
  return whole;
}

TEST_CASE("a block splits heads and inner columns, and keys no further than their heads",
          "[engine]") {
  // The tiny llm: 2 heads of 8 columns on a width of 16, one key head, 24 inner columns.
  const auto setup = prepare(tiny_job()).value();
  const auto matrices = sharded_matrices(setup, kind_of(setup, "llm.block"), 2).value();
  const auto shapes = [&](std::size_t i) {
    const auto& m = matrices[i];
    return std::vector<std::int64_t>{m.out, m.in, m.shard_out, m.shard_in};
  };
  using Shape = std::vector<std::int64_t>;
  REQUIRE(matrices.size() == 7);
  CHECK((shapes(0) == Shape{16, 16, 8, 16}));  // Queries.
  CHECK((shapes(1) == Shape{8, 16, 8, 16}));   // Keys: both devices have the one head.
  CHECK((shapes(3) == Shape{16, 16, 16, 8}));  // Behind attention.
  CHECK((shapes(4) == Shape{24, 16, 12, 16}));
  CHECK((shapes(6) == Shape{16, 24, 16, 12}));
  CHECK((matrices[3].joins && matrices[6].joins));
  CHECK_FALSE((matrices[0].joins || matrices[4].joins));
}

TEST_CASE("every kind of every family splits in two", "[engine][property]") {
  auto job = tiny_job();
  ModuleConfig audio{"audio", ModuleKind::encoder, "whisper", "llm", false, {}, 0.02, {}};
  audio.config = models::AudioConfig{
      .encoder_layers = 1, .d_model = 16, .encoder_attention_heads = 2, .encoder_ffn_dim = 24};
  job.modules.insert(job.modules.begin(), audio);
  const auto setup = prepare(job).value();
  for (const auto& kind : layer_kinds(setup)) {
    CAPTURE(kind.name);
    const auto matrices = sharded_matrices(setup, kind, 2).value();
    const bool split = !kind.name.ends_with(".embed") && !kind.name.ends_with(".norm");
    CHECK(matrices.empty() != split);
    // A layer that hands rows on sums what its devices made apart.
    const bool sums = std::any_of(matrices.begin(), matrices.end(),
                                  [](const ShardedMatrix& m) { return m.joins; });
    CHECK(sums == (split && !kind.name.ends_with(".head")));
  }
}

TEST_CASE("collectives are modelled from the speed of the link", "[engine]") {
  // Two devices, a link of 1 ms latency whose bytes take no time: an all-reduce in a ring is two
  // transfers. A block sums behind attention and behind its inner columns: 4 ms forward, and as
  // much for the gradients of its input; weight gradients stay where they are.
  QuietWatch watch(machine_clocks(), 100);
  const auto setup = prepare(tiny_job()).value();
  const auto block = kind_of(setup, "llm.block");
  const auto whole = nothing_at({16}, Bytes{10'000});
  const auto slow = profile_shard(setup, block, whole, {2, 1}, {1, 0}, watch).value();
  CHECK(slow.origin == CostOrigin::modelled);
  CHECK((slow.parallelism == scheduler::Parallelism{2, 1}));
  const auto& linear = slow.points.at(0).linear;
  CHECK(linear.forward_ms == Approx(4).margin(0.9));
  CHECK(linear.forward_ms > 4);  // And the measured matrices.
  CHECK(linear.input_grad_ms > 4);
  CHECK(linear.weight_grad_ms < 1);
  // Each device lacks half of: queries 256, behind attention 256, three inner matrices of 384, of 8
  // bytes; the keys and values are whole.
  CHECK(slow.parameters == Bytes{10'000 - 8 * (128 + 128 + 3 * 192)});

  // At 1 MB/s 16 rows of 16 columns of 8 bytes take 2.048 ms for a half and back: 4 x 1.024.
  const auto thin = profile_shard(setup, block, whole, {2, 1}, {0, 1e-3}, watch).value();
  CHECK(thin.points.at(0).linear.forward_ms == Approx(2 * 2.048).margin(0.9));

  const auto head =
      profile_shard(setup, kind_of(setup, "llm.head"), whole, {2, 1}, {1, 0}, watch).value();
  CHECK(head.points.at(0).linear.forward_ms < 1);
  CHECK(head.points.at(0).linear.input_grad_ms > 2);
}

TEST_CASE("a head in chunks keeps no logits measured or split", "[engine]") {
  // 40,000 columns of 8 bytes: 256 rows are a chunk, 512 two.
  auto job = tiny_job();
  auto llm = job.modules[2].config.as<models::LlmConfig>();
  llm.vocab_size = 40'000;
  job.modules[2].config = llm;
  const auto setup = prepare(job).value();
  const auto head = kind_of(setup, "llm.head");
  QuietWatch watch(machine_clocks(), 100);
  auto bench = KindBench::create(setup, head, watch).value();
  const auto measured = [&](TokenCount tokens) {
    bench.begin(tokens);
    do bench.forward();
    while (bench.backward());
    return bench.finish().point.linear;
  };
  // Kept of 512 rows: those that were chosen, their norm and their gradient, of 16 columns of 8
  // bytes, and some numbers a row; of 256 rows their logits, 82 MB.
  const auto whole = measured(256), chunked = measured(512);
  CHECK(whole.activation_bytes > 256.0 * 40'000 * 8);
  CHECK(chunked.activation_bytes < 512.0 * 8 * (3 * 16 + 16));
  // The input gradient is computed beside the loss, and only scaled later.
  CHECK(whole.input_grad_ms > 0.5 * whole.weight_grad_ms);
  CHECK(chunked.input_grad_ms < 0.1 * chunked.weight_grad_ms);

  auto all = nothing_at({512}, Bytes{100});
  all.points[0].linear = {1e6, 5, 1e6, 1000};
  const auto half = profile_shard(setup, head, all, {2, 1}, {0, 0}, watch).value();
  const auto& linear = half.points.at(0).linear;
  CHECK(linear.forward_ms < 1e6);
  CHECK(linear.weight_grad_ms < 1e6);
  CHECK(linear.input_grad_ms == 5);
  CHECK(linear.activation_bytes == 1000);
}

TEST_CASE("context parallel rows are those of a device", "[engine]") {
  QuietWatch watch(machine_clocks(), 100);
  const auto setup = prepare(tiny_job()).value();
  auto whole = nothing_at({64}, Bytes{800});
  whole.points[0].linear = {3, 5, 7, 1000};
  const auto made =
      profile_shard(setup, kind_of(setup, "llm.block"), whole, {1, 4}, {1, 0}, watch).value();
  REQUIRE(made.points.size() == 1);
  CHECK(made.points[0].tokens == 256);
  // Keys and values go through three other devices forward, with gradients again backward.
  CHECK(made.points[0].linear.forward_ms == Approx(3 + 3));
  CHECK(made.points[0].linear.input_grad_ms == Approx(5 + 3));
  CHECK(made.points[0].linear.weight_grad_ms == Approx(7));
  CHECK(made.points[0].attention.forward_ms > 0);
  CHECK(made.parameters == Bytes{800});
}

TEST_CASE("degrees that divide nothing are refused with those that do", "[engine][errors]") {
  QuietWatch watch(machine_clocks(), 100);
  const auto setup = prepare(tiny_job()).value();
  const auto heads = sharded_matrices(setup, kind_of(setup, "llm.block"), 3).error();
  CHECK(heads.code == Errc::infeasible);
  CHECK_THAT(heads.message, ContainsSubstring("heads = 2"));
  CHECK_THAT(heads.fix, ContainsSubstring("one of 1, 2"));
  const auto on = [&](std::vector<std::int32_t> devices, std::int32_t tp, std::int32_t cp) {
    const HandLayout layout{
        {},
        {{{"vision"}, {{0, 0, {{"vision", {}}}}}},
         {{"llm"}, {{.runs = {{"llm", {}}}, .devices = devices, .tp = tp, .cp = cp}}}}};
    return check_grids(setup, scheduler::place_by_hand(setup.model, layout, {1, 3},
                                                       scheduler::IdleDevices::left_out)
                                  .value());
  };
  CHECK(on({0, 1}, 2, 1).ok());
  CHECK_THAT(on({0, 1, 2}, 3, 1).error().message, ContainsSubstring("heads = 2"));
  CHECK(on({0, 1, 2}, 3, 1).error().where == "parallel");
  CHECK_THAT(on({0, 1, 2}, 1, 3).error().message, ContainsSubstring("no power of two"));
  const auto context =
      profile_shard(setup, kind_of(setup, "llm.block"), nothing_at({16}, {}), {1, 3}, {1, 0}, watch)
          .error();
  CHECK_THAT(context.message, ContainsSubstring("no power of two"));
}

TEST_CASE("a profile is completed by the degrees that it lacks", "[engine]") {
  const data::TempFolder folder;
  auto job = tiny_job();
  job.job.name = "tiny";
  job.job.run_dir = folder.path() / "tiny";
  const auto setup = prepare(job).value();
  ProfileOptions options;
  options.tokens_max = 32;
  options.budget_s = 0.2;
  const auto plain = obtain_profile(setup, options).value();
  options.degrees = {{2, 1}, {1, 2}};
  const auto completed = obtain_profile(setup, options).value();
  CHECK_FALSE(completed.reused);
  CHECK_THAT(completed.reason, ContainsSubstring("tp 2 cp 1, tp 1 cp 2"));
  CHECK(completed.profile.profiles.size() == 3 * plain.profile.profiles.size());
  const auto again = obtain_profile(setup, options).value();
  CHECK(again.reused);
  CHECK((again.profile == completed.profile));
  CHECK_THAT(to_json({{}, again.profile}), ContainsSubstring(kModelledHow));
  CHECK_THAT(to_json({{}, again.profile}), ContainsSubstring(kMeasuredLinks));

  const auto model = scheduler::CostModel::create(setup.model, again.profile).value();
  CHECK(model.parallelisms(setup.model.llm()).size() == 3);
  CHECK(model.origin(setup.model.llm()) == CostOrigin::modelled);
}

}  // namespace
}  // namespace troupe::engine
