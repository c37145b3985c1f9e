#include "tests/torch_catch.hpp"

#include "engine/execution/content_packing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstring>
#include <random>

#include "engine/setup/source_nodes.hpp"
#include "runtime/data/reading/image_patches.hpp"
#include "runtime/data/reading/resize_image.hpp"
#include "runtime/vocabulary/sample_content.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// A sample with three pictures of 4 x 4 patches, a text alone, and what they are on paper.
struct TwoSamples {
  TwoSamples() {
    data::DecodedSample pictures = tiny_sample(0);
    for (std::size_t more = 1; more < 3; ++more) {
      std::vector<std::uint8_t> pixels(16 * 588);
      for (std::size_t i = 0; i < pixels.size(); ++i)
        pixels[i] = static_cast<std::uint8_t>(i * 7 * more);
      pictures.images[0].push_back(data::patches_of(pixels, 4, 4, 2));
    }
    const std::vector<data::Turn> turns{{data::Role::user, "<image><image>then<image>?"},
                                        {data::Role::assistant, "three"}};
    pictures.text = data::encode_text(turns);
    pictures.llm_tokens = llm_length(pictures, setup.data);
    for (auto& sample : {pictures, tiny_sample(1)}) {
      shapes.push_back(data::shape_of(sample, setup.data, media_modules(setup)));
      store.put(sample.position, std::make_shared<const data::DecodedSample>(sample));
    }
  }

  SampleUnits units() const { return {shapes, pieces}; }
  Delivery delivery(ModuleId encoder, std::vector<std::int32_t> samples) const {
    Delivery made{DeviceId{0}, {}, encoder, std::move(samples), {}};
    made.bytes = content_bytes(made, units());
    return made;
  }
  void move(const Delivery& delivery, SampleStore& to) const {
    auto packed = pack_content(delivery, units(), store);
    REQUIRE(packed.ok());
    CHECK(packed.value().numel() == delivery.bytes.count());
    REQUIRE(unpack_content(delivery, units(), packed.value(), to).ok());
  }

  JobSetup setup = prepare(tiny_job()).value();
  std::vector<SampleShape> shapes;
  std::vector<SamplePiece> pieces{{0, ModuleId{0}, 0, 1}, {0, ModuleId{0}, 1, 2}};
  SampleStore store;
};

TEST_CASE("text comes out as it was packed, markers and labels too", "[engine]") {
  const TwoSamples two;
  const Delivery text = two.delivery({}, {1, 0});
  // Four bytes per token, of which each picture has one.
  const auto tokens = [&](std::int64_t at) { return two.store.find(at)->text.tokens.size(); };
  CHECK(text.bytes == Bytes{static_cast<std::int64_t>(4 * (tokens(0) + tokens(1)))});
  SampleStore there;
  two.move(text, there);
  for (const std::int64_t at : {0, 1}) {
    REQUIRE(there.find(at) != nullptr);
    CHECK((there.find(at)->text == two.store.find(at)->text));
    CHECK(there.find(at)->images.empty());
  }
}

TEST_CASE("media come out as they were packed, of a piece its items alone", "[engine]") {
  const TwoSamples two;
  const Delivery last = two.delivery(ModuleId{0}, {3});
  CHECK(last.bytes == Bytes{2 * 16 * 3 * 14 * 14});  // Of 1176 values a row, 4 bytes each.
  SampleStore there;
  two.move(last, there);
  const auto& all = two.store.find(0)->images[0];
  {
    const auto& came = there.find(0)->images[0];
    REQUIRE(came.size() == 3);
    CHECK(came[0].patches.empty());
    CHECK((came[1] == all[1] && came[2] == all[2]));
  }
  two.move(two.delivery(ModuleId{0}, {2}), there);
  two.move(two.delivery({}, {0}), there);
  CHECK((there.find(0)->images[0] == all));
  CHECK((there.find(0)->text == two.store.find(0)->text));
}

TEST_CASE("media have the bits of who decodes them, for encoders of any sizes", "[engine]") {
  data::DataOptions options;
  options.vision = {
      {"eyes", {}},
      {"glasses", {.patch_size = 7, .merge_size = 4, .temporal_patch_size = 1}},
      {"lens", {.patch_size = 16, .merge_size = 1, .temporal_patch_size = 3, .rows_per_image = 4}}};
  options.vision[1].input.scale = {{0.5, 0.5, 0.5}, {0.5, 0.25, 0.5}};
  const std::vector<PixelScale> scales{{}, options.vision[1].input.scale};
  options.audio[0].input.mel_bins = 128;
  data::DecodedSample sample;
  sample.id = "of-all";
  sample.images.resize(3);
  sample.audio.resize(1);
  std::mt19937 random(7);
  std::string question;
  for (const auto& [width, height] :
       std::vector<data::ImageSize>{{45, 37}, {1, 1}, {33, 100}, {28, 28}}) {
    question += "<image>";
    data::RgbImage image{width, height, {}};
    for (std::int32_t byte = 0; byte < 3 * width * height; ++byte)
      image.rgb.push_back(static_cast<std::uint8_t>(random()));
    for (std::size_t e = 0; e < 3; ++e)
      sample.images[e].push_back(
          data::prepare_image(image, options, options.vision[e].input).value());
  }
  for (const std::int32_t frames : {3000, 17}) {
    std::vector<float> mel(static_cast<std::size_t>(frames) * 128);
    for (float& value : mel) value = static_cast<float>(random()) / 4e9F - 1;
    sample.audio[0].push_back({std::move(mel), frames, 0});
  }
  sample.text = data::encode_text(std::vector<data::Turn>{{data::Role::user, question + "<audio>?"},
                                                          {data::Role::assistant, "five"}});
  const data::MediaModules modules{{ModuleId{0}, ModuleId{1}, ModuleId{2}}, {ModuleId{3}}};
  const std::vector<SampleShape> shapes{data::shape_of(sample, options, modules)};
  const SampleUnits units(shapes, {});
  SampleStore store, there;
  store.put(0, std::make_shared<const data::DecodedSample>(sample));
  // A byte for each of the values of a picture that differ; of sounds 4 for each.
  const std::array<std::int64_t, 4> divided_by{2, 1, 3, 1}, value_bytes{1, 1, 1, 4};
  for (std::size_t e = 0; e < 4; ++e) {
    std::size_t values = 0;
    if (e < 3) {
      for (const auto& picture : sample.images[e]) values += picture.patches.size();
    } else {
      for (const auto& window : sample.audio[0]) values += window.mel.size();
    }
    Delivery delivery{DeviceId{0}, {}, ModuleId{e}, {0}, {}};
    delivery.bytes = content_bytes(delivery, units);
    CHECK(delivery.bytes.count() ==
          static_cast<std::int64_t>(values) / divided_by[e] * value_bytes[e]);
    const auto packed = pack_content(delivery, units, store, scales);
    REQUIRE(packed.ok());
    REQUIRE(unpack_content(delivery, units, packed.value(), there, scales).ok());
    CHECK(pack_content(delivery, units, store).ok() == (e != 1));  // Of pixels by another scale.
  }
  const auto came = there.find(0);
  for (std::size_t e = 0; e < 3; ++e)
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(same_bits(came->images[e][i].patches, sample.images[e][i].patches));
      CHECK(came->images[e][i].grid_height == sample.images[e][i].grid_height);
      CHECK(came->images[e][i].grid_width == sample.images[e][i].grid_width);
    }
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(same_bits(came->audio[0][i].mel, sample.audio[0][i].mel));
}

TEST_CASE("rows that nobody says are of pixels move as they are", "[engine]") {
  TwoSamples two;
  two.shapes[0].media[0].equal_frames = 0;
  auto noise = *two.store.find(0);
  for (float& value : noise.images[0][2].patches) value += 0.125F;
  two.store.put(0, std::make_shared<const data::DecodedSample>(noise));
  const Delivery last = two.delivery(ModuleId{0}, {3});
  CHECK(last.bytes == Bytes{2 * 16 * 1176 * 4});
  SampleStore there;
  two.move(last, there);
  CHECK(same_bits(there.find(0)->images[0][2].patches, noise.images[0][2].patches));
}

TEST_CASE("content of another size than planned is not taken", "[engine][errors]") {
  const TwoSamples two;
  const Delivery picture = two.delivery(ModuleId{0}, {0});
  const std::int64_t bytes = picture.bytes.count();
  CHECK(bytes == 3 * 16 * 588);
  SampleStore there;
  for (const std::int64_t other : {std::int64_t{0}, bytes - 1, 8 * bytes}) {
    const auto refused = unpack_content(picture, two.units(), at::zeros({other}, at::kByte), there);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::internal);
    CHECK(refused.error().message ==
          "content of sample 's0' came with " + std::to_string(other) + " bytes instead of 28224");
  }
  CHECK(there.find(0) == nullptr);
}

TEST_CASE("what is not there, or not as planned, is not sent", "[engine][errors]") {
  const TwoSamples two;
  const auto refused = [&](const Delivery& delivery, const SampleStore& store, const char* why) {
    const auto packed = pack_content(delivery, two.units(), store);
    REQUIRE_FALSE(packed.ok());
    CHECK(packed.error().code == Errc::internal);
    CHECK(packed.error().message.find(why) != std::string::npos);
  };
  const SampleStore empty;
  refused(two.delivery({}, {0}), empty, "did not decode it");
  auto longer = *two.store.find(1);
  longer.text.tokens.push_back(7);
  longer.text.labels.push_back(7);
  SampleStore other;
  other.put(1, std::make_shared<const data::DecodedSample>(longer));
  refused(two.delivery({}, {1}), other, "other content than planned");
  longer.text.tokens.resize(3);
  longer.text.labels.resize(3);
  other.put(1, std::make_shared<const data::DecodedSample>(longer));
  refused(two.delivery({}, {1}), other, "less content than planned");
  auto odd = *two.store.find(0);
  odd.images[0][1].patches[196] += 1;  // The first pixel of its second frame.
  other.put(0, std::make_shared<const data::DecodedSample>(odd));
  refused(two.delivery(ModuleId{0}, {0}), other, "patches that were cut from no picture");
  odd.images[0][1].patches.resize(8 * 1176);
  other.put(0, std::make_shared<const data::DecodedSample>(odd));
  refused(two.delivery(ModuleId{0}, {0}), other, "other content than planned");
  auto without = *two.store.find(0);
  without.images[0].pop_back();
  other.put(0, std::make_shared<const data::DecodedSample>(without));
  refused(two.delivery(ModuleId{0}, {0}), other, "other content than planned");
}

/// The parameters after a step, where only some nodes have samples of their own.
std::vector<at::Tensor> step_with(const std::vector<std::int32_t>& nodes, double delay_ms = 0) {
  auto job = tiny_job();
  job.debug.delayed_device_ms = delay_ms;
  job.data.sources.push_back({});
  job.data.sources[0].nodes = nodes;
  Cluster cluster(job);
  std::array<SampleStore, 4> stores;
  for (std::size_t node = 0; node < 4; ++node)
    if (sees_source(job, 0, NodeId{node}))
      for (std::int64_t at = 0; at < 6; ++at)
        stores[node].put(at, std::make_shared<const data::DecodedSample>(tiny_sample(at)));
  cluster.begin(0, stores);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  cluster.decide({1, true, 1, 1e-2, ""});
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  return cluster.parameters();
}

TEST_CASE("a step has the same bits wherever its samples are decoded", "[engine]") {
  const auto expected = step_with({});
  for (const auto& nodes : {std::vector<std::int32_t>{3}, {0}, {1, 2}}) {
    const auto parameters = step_with(nodes, nodes.size() == 2 ? 0.2 : 0);
    REQUIRE(parameters.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(parameters[i], expected[i]));
  }
}

}  // namespace
}  // namespace troupe::engine
