#include "engine/profiling/profile_data.hpp"

#include <catch2/catch_approx.hpp>

#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/data/made/demo_data.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;

/// The tiny job on demo data. It has no audio encoder, so that samples with clips are bad.
struct DemoJob {
  data::TempFolder folder;
  JobSetup setup;

  explicit DemoJob(std::int32_t samples = 40) {
    const auto made = data::make_demo_data(folder.path(), {.samples = samples, .seed = 3});
    REQUIRE(made.ok());
    auto job = tiny_job();
    job.data.sources.resize(1);
    job.data.sources[0].json = made.value().json;
    job.data.sources[0].format = "llava";
    setup = prepare(job).value();
  }
};

TEST_CASE("a distribution has moments, quantiles and bars of powers of two", "[engine]") {
  // Sorted 1 2 3 6 8: mean 4, squares 9 + 4 + 1 + 4 + 16 = 34, deviation sqrt(34 / 5).
  const auto made = distribution_of({8, 1, 3, 6, 2});
  CHECK(made.count == 5);
  CHECK(made.mean == Approx(4));
  CHECK(made.deviation == Approx(std::sqrt(6.8)));
  // Nearest rank: ceil(5 x 25 %) = 2nd, 3rd, 4th, and the last for 95 and 99 %.
  CHECK((made.p25 == 2 && made.p50 == 3 && made.p75 == 6 && made.p95 == 8 && made.largest == 8));
  const std::vector<HistogramBar> bars{{1, 2, 1}, {2, 4, 2}, {4, 8, 1}, {8, 16, 1}};
  CHECK((made.histogram == bars));
  CHECK((distribution_of({0, 5}).histogram ==
         std::vector<HistogramBar>{{0, 1, 1}, {1, 2, 0}, {2, 4, 0}, {4, 8, 1}}));
  CHECK((distribution_of({}) == LengthDistribution{}));
}

TEST_CASE("a data profile describes the good samples of a job", "[engine]") {
  const DemoJob demo;
  const auto profile = profile_data(demo.setup, {.threads = 2, .on_progress = {}}).value();
  CHECK(profile.records == 40);
  CHECK(profile.measured == 40);
  // Of every ten samples three have clips, which this model cannot take, and one has text alone.
  CHECK(profile.bad == 12);
  CHECK(profile.text_only_share == Approx(4.0 / 28));
  REQUIRE(profile.encoders.size() == 1);
  CHECK(profile.encoders[0].module == "vision");
  CHECK(profile.encoders[0].sample_share == Approx(24.0 / 28));
  CHECK(profile.encoders[0].sample_rows.count == 24);
  CHECK(profile.encoders[0].item_rows.count > 24);
  CHECK(profile.llm_tokens.count == 28);
  CHECK(profile.trained_tokens.largest < profile.llm_tokens.largest);
}

TEST_CASE("a large data set is measured by a random selection", "[engine]") {
  const DemoJob demo;
  const auto profile = profile_data(demo.setup, {.samples_max = 10, .on_progress = {}}).value();
  CHECK(profile.records == 40);
  CHECK(profile.measured == 10);
  CHECK(profile.llm_tokens.count + profile.bad == 10);
}

TEST_CASE("shapes are drawn from a seed and repeat a small data set", "[engine]") {
  const DemoJob demo(10);
  const auto shapes = draw_shapes(demo.setup, 30, 5).value();
  CHECK(shapes.size() == 30);
  CHECK((shapes == draw_shapes(demo.setup, 30, 5).value()));
  CHECK_FALSE((shapes == draw_shapes(demo.setup, 30, 6).value()));
  // Seven of ten are good: the first seven are all different, and positions count on.
  for (std::size_t i = 0; i < 7; ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK(shapes[i].id != shapes[j].id);
  CHECK(shapes[29].position == 29);
}

TEST_CASE("batch shapes are those that training meets", "[engine]") {
  const DemoJob demo;
  const auto batches = batch_shapes(demo.setup, 1, 2).value();
  REQUIRE(batches.size() == 2);
  const auto dataset = data::Dataset::open(demo.setup.data).value();
  const auto order = data::record_order(demo.setup.data, 0, dataset.size());
  for (std::size_t b = 0; b < 2; ++b)
    for (const auto& shape : batches[b]) {
      // Six samples a batch: positions 6..11, then 12..17.
      CHECK((shape.position >= 6 * (static_cast<std::int64_t>(b) + 1)));
      CHECK((shape.position < 6 * (static_cast<std::int64_t>(b) + 2)));
      auto decoded = data::decode_sample(
          dataset, dataset[order[static_cast<std::size_t>(shape.position)]], demo.setup.data);
      auto& sample = std::get<data::DecodedSample>(decoded);
      sample.position = shape.position;
      CHECK((data::shape_of(sample, demo.setup.data, media_modules(demo.setup)) == shape));
    }
}

TEST_CASE("shapes say which nodes see them", "[engine]") {
  DemoJob demo;
  demo.setup.job.data.sources[0].nodes = {1, 3};
  const std::vector<NodeId> nodes{NodeId{1}, NodeId{3}};
  const auto drawn = draw_shapes(demo.setup, 5).value();
  for (const auto& shape : drawn) CHECK((shape.seen_by == nodes));
  const auto batches = batch_shapes(demo.setup, 0, 1).value();
  for (const auto& shape : batches.at(0)) CHECK((shape.seen_by == nodes));
}

TEST_CASE("data that cannot be used is an error", "[engine][errors]") {
  DemoJob demo(3);
  CHECK(draw_shapes(demo.setup, 0).error().code == Errc::invalid_argument);
  CHECK(batch_shapes(demo.setup, -1, 1).error().code == Errc::invalid_argument);
  demo.setup.data.max_seq_len = 1;
  CHECK(profile_data(demo.setup).error().code == Errc::bad_data);
  CHECK(draw_shapes(demo.setup, 4).error().code == Errc::bad_data);
  demo.setup.data.sources[0].json = "/nowhere.json";
  CHECK(profile_data(demo.setup).error().code == Errc::not_found);
}

}  // namespace
}  // namespace troupe::engine
