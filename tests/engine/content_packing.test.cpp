#include "tests/torch_catch.hpp"

#include "engine/execution/content_packing.hpp"

#include <ATen/ops/equal.h>

#include <array>

#include "engine/setup/source_nodes.hpp"
#include "runtime/vocabulary/sample_content.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// A sample with three pictures of 4 x 4 patches, a text alone, and what they are on paper.
struct TwoSamples {
  TwoSamples() {
    data::DecodedSample pictures = tiny_sample(0);
    const auto first = pictures.images[0][0];
    for (int more = 0; more < 2; ++more) {
      pictures.images[0].push_back(first);
      for (float& value : pictures.images[0].back().patches) value += 1 + static_cast<float>(more);
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
    unpack_content(delivery, units(), packed.value(), to);
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
  CHECK(last.bytes == Bytes{2 * 16 * 1176 * 4});
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
