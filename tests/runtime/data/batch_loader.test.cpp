#include "runtime/data/batches/batch_loader.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <future>
#include <random>
#include <thread>

#include "golden.hpp"
#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/data/samples/sample_lengths.hpp"
#include "temp_folder.hpp"

namespace troupe::data {
namespace {

using std::chrono::milliseconds;

/// Long enough for a busy machine; reached only when a test fails.
constexpr milliseconds kPatience{60000};

/// Twenty records: text, a picture, a clip, and a missing picture, in turn.
struct Fixture {
  Fixture() {
    nlohmann::json records;
    for (int i = 0; i < 20; ++i) {
      nlohmann::json record = {{"id", "s" + std::to_string(i)}};
      const int kind = i % 4;
      if (kind == 1) record["image"] = "rgb.jpg";
      if (kind == 2) record["audio"] = "mono8k.wav";
      if (kind == 3) record["image"] = "none.jpg";
      const char* const markers[] = {"", "<image>", "<audio>", "<image>"};
      record["conversations"] = {{{"from", "human"}, {"value", markers[kind]}},
                                 {{"from", "gpt"}, {"value", "answer " + std::to_string(i)}}};
      records.push_back(record);
    }
    options.sources = {{folder.write("samples.json", records.dump()), golden_path(""), "llava"}};
    auto opened = Dataset::open(options);
    REQUIRE(opened.ok());
    dataset = std::make_shared<const Dataset>(std::move(opened).value());
  }

  BatchLoader loader(LoaderLimits limits = {}) const {
    auto started = BatchLoader::start(dataset, options, limits);
    REQUIRE(started.ok());
    return std::move(started).value();
  }

  TempFolder folder;
  DataOptions options;
  std::shared_ptr<const Dataset> dataset;
};

BatchRequest whole_epoch(std::int64_t batch, std::int64_t epoch) {
  BatchRequest request{batch, epoch, {}};
  for (std::int64_t position = 0; position < 20; ++position)
    request.samples.push_back({position, {}});
  return request;
}

TEST_CASE("BatchLoader measures before it decodes, as measure_sample does", "[data]") {
  Fixture fixture;
  auto loader = fixture.loader({.threads = 1});
  std::atomic<int> decoded = 0;
  REQUIRE(loader.request(whole_epoch(0, 0)).ok());
  REQUIRE(loader.request(whole_epoch(1, 0), [&] { ++decoded; }).ok());
  BatchRequest lengths = whole_epoch(2, 0);
  const MediaModules modules{{ModuleId{0}}, {ModuleId{1}}};
  lengths.measure = modules;
  std::promise<int>
      decoded_before;  // It is told on another thread, maybe after the batch is taken.
  REQUIRE(loader.request(lengths, [&] { decoded_before.set_value(decoded.load()); }).ok());
  REQUIRE(loader.request(whole_epoch(3, 0), [&] { ++decoded; }).ok());
  const auto measured = loader.take(2, kPatience);
  REQUIRE(measured.ok());
  CHECK(measured.value().samples.empty());
  REQUIRE(measured.value().lengths.size() == 20);
  auto told = decoded_before.get_future();
  REQUIRE(told.wait_for(kPatience) == std::future_status::ready);
  CHECK(told.get() == 0);
  const auto order = epoch_order(fixture.options.seed, 0, 20);
  const auto content = loader.take(1, kPatience);
  REQUIRE(content.ok());
  CHECK(content.value().lengths.empty());
  int good = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    auto expected =
        measure_sample(*fixture.dataset, (*fixture.dataset)[order[i]], fixture.options, modules);
    if (auto* shape = std::get_if<SampleShape>(&expected))
      shape->position = static_cast<std::int64_t>(i), ++good;
    CHECK(measured.value().lengths[i] == expected);
    // What decodes has the lengths that were measured.
    const auto* sample = std::get_if<DecodedSample>(&content.value().samples[i]);
    REQUIRE((sample != nullptr) == std::holds_alternative<SampleShape>(expected));
    if (sample)
      CHECK(shape_of(*sample, fixture.options, modules).media ==
            std::get<SampleShape>(expected).media);
  }
  CHECK(good == 15);
}

TEST_CASE("BatchLoader measures by way of an index, and says of how many it knew", "[data]") {
  Fixture fixture;
  BatchRequest lengths = whole_epoch(0, 0);
  lengths.measure = MediaModules{{ModuleId{0}}, {ModuleId{1}}};
  const auto measured = [&](const std::shared_ptr<LengthIndex>& index) {
    auto loader = BatchLoader::start(fixture.dataset, fixture.options, {}, index).value();
    REQUIRE(loader.request(lengths).ok());
    auto taken = loader.take(0, kPatience).value();
    if (index != nullptr) index->save();
    return taken;
  };
  const auto index_here = [&] {
    LengthIndexOptions options;
    options.folder = fixture.folder.path() / "lengths";
    options.settled_after = milliseconds(0);
    return std::make_shared<LengthIndex>(options, std::vector<std::string>{"golden"});
  };
  const auto alone = measured(nullptr);
  const auto cold = measured(index_here());
  const auto warm = measured(index_here());
  CHECK(alone.indexed == 0);
  CHECK(cold.indexed == 0);
  CHECK(warm.indexed == 15);  // Five have a picture that is not there: it is looked for again.
  CHECK((cold.lengths == alone.lengths));
  CHECK((warm.lengths == alone.lengths));
}

TEST_CASE("BatchLoader saves what an epoch measured when the next one begins", "[data]") {
  Fixture fixture;
  const auto index_here = [&] {
    LengthIndexOptions options;
    options.folder = fixture.folder.path() / "lengths";
    options.settled_after = milliseconds(0);
    return std::make_shared<LengthIndex>(options, std::vector<std::string>{"golden"});
  };
  const auto measure = [&](BatchLoader& loader, std::int64_t batch, std::int64_t epoch,
                           std::int64_t begin, std::int64_t end) {
    BatchRequest request{batch, epoch, {}};
    for (std::int64_t position = begin; position < end; ++position)
      request.samples.push_back({position, {}});
    request.measure = MediaModules{{ModuleId{0}}, {ModuleId{1}}};
    REQUIRE(loader.request(request).ok());
    REQUIRE(loader.take(batch, kPatience).ok());
  };
  // Of all records those that a process which begins now finds; it saves nothing itself.
  const auto known = [&] {
    const auto index = index_here();
    int count = 0;
    for (const auto& record : fixture.dataset->records()) {
      SampleLengths lengths(index.get(), record.source);
      measure_sample(*fixture.dataset, record, fixture.options, {{ModuleId{0}}, {ModuleId{1}}},
                     lengths);
      count += lengths.was_indexed() ? 1 : 0;
    }
    return count;
  };
  auto first = BatchLoader::start(fixture.dataset, fixture.options, {}, index_here()).value();
  measure(first, 0, 0, 0, 10);
  measure(first, 1, 0, 10, 20);
  measure(first, 2, 1, 0, 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (known() < 15 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(20));
  CHECK(known() == 15);
}

TEST_CASE("BatchLoader delivers each wanted position in the order of the request", "[data]") {
  Fixture fixture;
  auto loader = fixture.loader();
  const BatchRequest request{
      7, 3, {{5, {}}, {2, {.images = 0, .audio = 0, .text = true}}, {19, {}}}};
  REQUIRE(loader.request(request).ok());
  auto batch = loader.take(7, kPatience);
  REQUIRE(batch.ok());
  CHECK(batch.value().batch == 7);
  CHECK(batch.value().epoch == 3);
  REQUIRE(batch.value().samples.size() == 3);

  const auto order = epoch_order(fixture.options.seed, 3, 20);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& wanted = request.samples[i];
    const Record& record = (*fixture.dataset)[order[static_cast<std::size_t>(wanted.position)]];
    auto expected = decode_sample(*fixture.dataset, record, fixture.options, wanted.parts);
    if (auto* sample = std::get_if<DecodedSample>(&expected)) sample->position = wanted.position;
    CHECK(batch.value().samples[i] == expected);
  }
}

TEST_CASE("BatchLoader goes in file order where shuffling is off", "[data]") {
  Fixture fixture;
  fixture.options.shuffle = false;
  auto loader = fixture.loader();
  REQUIRE(loader.request({0, 9, {{4, {}}}}).ok());
  auto batch = loader.take(0, kPatience);
  REQUIRE(batch.ok());
  CHECK(std::get<DecodedSample>(batch.value().samples[0]).id == "s4");
}

TEST_CASE("BatchLoader gives the same samples with any threads and bounds", "[data][property]") {
  Fixture fixture;
  auto reference = fixture.loader({.threads = 1});
  REQUIRE(reference.request(whole_epoch(0, 1)).ok());
  const auto expected = reference.take(0, kPatience);
  REQUIRE(expected.ok());

  const int seed = GENERATE(range(0, 12));
  std::mt19937 random(static_cast<unsigned>(seed));
  LoaderLimits limits;
  limits.threads = 1 + static_cast<std::int32_t>(random() % 5);
  limits.batches_ahead = 3;
  limits.bytes_ahead = Bytes{1 + static_cast<std::int64_t>(random() % 400000)};
  auto loader = fixture.loader(limits);
  for (std::int64_t batch = 0; batch < 3; ++batch)
    REQUIRE(loader.request(whole_epoch(batch, batch)).ok());
  // Taken out of order: a bound on bytes must not stop the batch somebody waits for.
  for (const std::int64_t batch : {2, 0, 1}) {
    auto taken = loader.take(batch, kPatience);
    REQUIRE(taken.ok());
    if (batch == 1) CHECK(taken.value().samples == expected.value().samples);
  }
  CHECK(loader.bytes_held() == Bytes{});
}

TEST_CASE("BatchLoader decodes ahead only up to its bound on bytes", "[data]") {
  Fixture fixture;
  auto loader = fixture.loader({.threads = 2, .batches_ahead = 8, .bytes_ahead = Bytes{1}});
  std::promise<void> first;
  REQUIRE(loader.request(whole_epoch(0, 0), [&] { first.set_value(); }).ok());
  std::atomic<bool> second_ready = false;
  REQUIRE(loader.request(whole_epoch(1, 0), [&] { second_ready = true; }).ok());
  REQUIRE(first.get_future().wait_for(kPatience) == std::future_status::ready);
  // The first batch holds more than the bound, so nothing of the second is begun.
  std::this_thread::sleep_for(milliseconds(20));
  CHECK_FALSE(second_ready);
  REQUIRE(loader.take(0, kPatience).ok());
  REQUIRE(loader.take(1, kPatience).ok());
}

TEST_CASE("BatchLoader answers an empty request with an empty batch", "[data]") {
  Fixture fixture;
  auto loader = fixture.loader();
  bool is_ready = false;
  REQUIRE(loader.request({4, 0, {}}, [&] { is_ready = true; }).ok());
  CHECK(is_ready);
  auto batch = loader.take(4, milliseconds(0));
  REQUIRE(batch.ok());
  CHECK(batch.value().samples.empty());
}

TEST_CASE("BatchLoader refuses wrong requests", "[data][errors]") {
  Fixture fixture;
  CHECK(BatchLoader::start(fixture.dataset, fixture.options, {.threads = 0}).error().code ==
        Errc::invalid_argument);
  auto loader = fixture.loader({.batches_ahead = 2});
  CHECK(loader.request({0, 0, {{20, {}}}}).error().code == Errc::invalid_argument);
  CHECK(loader.request({0, 0, {{-1, {}}}}).error().code == Errc::invalid_argument);
  CHECK(loader.request({0, -1, {}}).error().code == Errc::invalid_argument);
  REQUIRE(loader.request({0, 0, {{0, {}}}}).ok());
  CHECK(loader.request({0, 0, {{1, {}}}}).error().code == Errc::invalid_argument);
  REQUIRE(loader.request({1, 0, {{0, {}}}}).ok());
  CHECK(loader.request({2, 0, {{0, {}}}}).error().code == Errc::unavailable);
  CHECK(loader.take(9, kPatience).error().code == Errc::invalid_argument);
  REQUIRE(loader.take(0, kPatience).ok());
  CHECK(loader.take(0, kPatience).error().code == Errc::invalid_argument);
  REQUIRE(loader.request({2, 0, {{0, {}}}}).ok());
}

TEST_CASE("BatchLoader says when a batch is late and delivers it later", "[data][errors]") {
  Fixture fixture;
  auto loader = fixture.loader({.threads = 1});
  REQUIRE(loader.request(whole_epoch(0, 0)).ok());
  REQUIRE(loader.request(whole_epoch(1, 0)).ok());
  auto late = loader.take(1, milliseconds(0));
  if (!late.ok()) {
    CHECK(late.error().code == Errc::timed_out);
    CHECK(loader.take(1, kPatience).ok());
  }
}

TEST_CASE("BatchLoader drops a batch, and who waits for it learns so", "[data]") {
  Fixture fixture;
  auto loader = fixture.loader({.threads = 1, .batches_ahead = 2});
  REQUIRE(loader.request(whole_epoch(0, 0)).ok());
  REQUIRE(loader.request(whole_epoch(1, 0)).ok());
  loader.drop(0);
  loader.drop(17);
  CHECK(loader.take(0, kPatience).error().code == Errc::invalid_argument);
  REQUIRE(loader.request(whole_epoch(0, 1)).ok());  // Its place is free again.
  CHECK(loader.take(1, kPatience).ok());
  CHECK(loader.take(0, kPatience).value().epoch == 1);
}

TEST_CASE("BatchLoader ends every wait when it is cancelled", "[data]") {
  Fixture fixture;
  for (int round = 0; round < 20; ++round) {
    auto loader = fixture.loader({.threads = 1 + round % 3});
    std::atomic<int> calls = 0;
    for (std::int64_t batch = 0; batch < 4; ++batch)
      REQUIRE(loader.request(whole_epoch(batch, batch), [&] { ++calls; }).ok());
    auto waiting = std::async(std::launch::async, [&] { return loader.take(3, kPatience).ok(); });
    if (round % 2 == 0) std::this_thread::sleep_for(milliseconds(round / 4));
    loader.cancel();
    const int calls_then = calls;
    waiting.get();  // Returns: with the batch, or cancelled.
    CHECK(loader.take(0, kPatience).error().code == Errc::cancelled);
    CHECK(loader.request({9, 0, {}}).error().code == Errc::cancelled);
    CHECK(loader.bytes_held() == Bytes{});
    loader.cancel();
    CHECK(calls == calls_then);  // No callback after cancel returned.
  }
}

TEST_CASE("places of the order are of all sources, also of those that are not here", "[data]") {
  Fixture fixture;
  fixture.options.shuffle = false;
  auto sources = fixture.options.sources;
  sources.insert(sources.begin(), {fixture.folder.path() / "nowhere.json", fixture.folder.path()});
  fixture.options.sources = sources;
  fixture.options.sources[0].is_here = false;
  fixture.dataset = std::make_shared<const Dataset>(Dataset::open(fixture.options).value());
  auto loader = fixture.loader();
  BatchRequest request{0, 0, {{5, {}}, {9, {}}}, Epochs(std::vector<SourceCounts>{{0, {5, 20}}})};
  REQUIRE(loader.request(request).ok());
  const auto batch = loader.take(0, kPatience).value();
  // By hand: places 5 and 9 are the records 0 and 4 of the second source, which have text alone.
  CHECK(std::get<DecodedSample>(batch.samples[0]).id == "s0");
  CHECK(std::get<DecodedSample>(batch.samples[1]).id == "s4");
  request.batch = 1;
  request.samples = {{4, {}}};
  const auto refused = loader.request(request);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK(refused.error().message == "batch 1 wants position 4 of a source that is not here");
  request.samples = {{25, {}}};
  CHECK(loader.request(request).error().message == "batch 1 wants position 25 of 25");
}

}  // namespace
}  // namespace troupe::data
