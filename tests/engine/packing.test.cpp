#include "tests/torch_catch.hpp"

#include "engine/execution/teacher_packing.hpp"
#include "engine/layout/choose_layout.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <catch2/matchers/catch_matchers_string.hpp>

#include "kernels/mask_tiles.hpp"
#include "runtime/data/reading/byte_tokenizer.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

using Part = std::vector<std::int32_t>;
using Positions = std::vector<std::int64_t>;

job::Job job_with(AttentionRule rule) {
  job::Job job = tiny_job();
  job.modules.back().attention = rule;
  return job;
}

/// Six tiny samples; those at even positions have a picture of 16 patches, which are four rows of
/// the llm.
struct Fixture {
  explicit Fixture(AttentionRule rule = AttentionRule::causal)
      : setup(prepare(job_with(rule)).value()) {}

  JobSetup setup;
  ParallelPlan plan = make_parallel_plan(setup).value();
  SampleStore store;
  std::vector<SampleShape> samples = plan_tiny_batch(setup, plan, store).value().iteration.samples;
  const ModelGraph& graph = setup.model;
  ModuleId vision{0}, llm = setup.model.llm();
};

TEST_CASE("samples stand in the part's order, and those without rows take none", "[engine]") {
  const Fixture fixture;
  const Part part{2, 1, 0};
  const auto spans =
      row_spans(fixture.graph, fixture.vision, RowKind::output, fixture.samples, part);
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].sample == 2);
  CHECK(spans[0].begin == 0);
  CHECK(spans[1].sample == 0);
  CHECK(spans[1].begin == 4);
  CHECK(row_count(spans) == 8);
  CHECK(find_span(spans, 1) == nullptr);
  CHECK(find_span(spans, 0) == &spans[1]);
  const auto inside =
      row_spans(fixture.graph, fixture.vision, RowKind::hidden, fixture.samples, part);
  CHECK(row_count(inside) == 32);
}

TEST_CASE("a message of the same samples in another order is not the whole tensor", "[engine]") {
  const Fixture fixture;
  const auto spans =
      row_spans(fixture.graph, fixture.vision, RowKind::output, fixture.samples, Part{2, 0});
  CHECK(covers(spans, {2, 0}));
  CHECK_FALSE(covers(spans, {0, 2}));
  CHECK_FALSE(covers(spans, {2}));
}

TEST_CASE("media positions count from the begin of the packed sequence", "[engine]") {
  const Fixture fixture;
  const Part part{2, 1, 0};
  const auto packed = pack_text(fixture.graph, fixture.samples, part, fixture.store).value();

  // <begin> <user> then the picture's four rows; the last sample begins where the two before end.
  const std::int64_t before = fixture.samples[2].llm_tokens + fixture.samples[1].llm_tokens;
  const auto& positions = packed.media_positions[fixture.vision.index()];
  REQUIRE(positions.size() == 3);
  CHECK((positions[0] == Positions{2, 3, 4, 5}));
  CHECK(positions[1].empty());
  CHECK((positions[2] == Positions{before + 2, before + 3, before + 4, before + 5}));
  REQUIRE(packed.token_ids.numel() == before + fixture.samples[0].llm_tokens);
  CHECK(packed.token_ids[before].item<std::int64_t>() == packed.token_ids[0].item<std::int64_t>());
  // Labels are those of the samples: each has its own count of trained tokens.
  std::int64_t trained = 0;
  for (const auto sample : part)
    trained += fixture.samples[static_cast<std::size_t>(sample)].trained_tokens;
  CHECK(packed.labels.ne(data::kIgnoreLabel).sum().item<std::int64_t>() == trained);
}

TEST_CASE("a teacher reads the text alone, and its rows find their tokens again", "[engine]") {
  const Fixture fixture;
  const Part part{2, 1, 0};
  const auto packed = pack_text(fixture.graph, fixture.samples, part, fixture.store).value();
  const auto tokens = [&](std::int32_t sample) {
    return fixture.samples[static_cast<std::size_t>(sample)].llm_tokens;
  };
  // Samples 2 and 0 have a picture of four rows behind two tokens.
  const auto shapes = pack_teacher_shapes(fixture.samples, part).value();
  CHECK((shapes.segments == Positions{tokens(2) - 4, tokens(1), tokens(0) - 4}));
  CHECK(shapes.positions[static_cast<std::size_t>(tokens(2) - 4)] == 0);
  const auto read = text_alone(packed);
  REQUIRE(read.numel() == tokens(2) + tokens(1) + tokens(0) - 8);
  const auto id = [](const at::Tensor& ids, std::int64_t i) { return ids[i].item<std::int64_t>(); };
  CHECK(id(read, 1) == id(packed.token_ids, 1));
  CHECK(id(read, 2) == id(packed.token_ids, 6));

  // A row per token with its place in its sample, a hundred for each sample.
  std::map<std::int32_t, at::Tensor> rows;
  for (const std::int32_t sample : {0, 1, 2}) {
    const std::int64_t count = tokens(sample) - (sample == 1 ? 0 : 4);
    rows[sample] = at::arange(count, at::kDouble).add(100 * sample).unsqueeze(1);
  }
  const auto taught = taught_rows("teacher", packed, part, rows).value();
  CHECK(taught.teacher == "teacher");
  REQUIRE(taught.positions.numel() == read.numel());
  CHECK(at::equal(packed.token_ids.index_select(0, taught.positions), read));
  CHECK(id(taught.positions, 2) == 6);
  CHECK(taught.rows[0].item<double>() == 200);
  CHECK(taught.rows[tokens(2) - 4].item<double>() == 100);
  CHECK(taught.rows[-1].item<double>() == static_cast<double>(tokens(0) - 5));

  rows[1] = rows[1].narrow(0, 0, 1);
  CHECK_FALSE(taught_rows("teacher", packed, part, rows).ok());
  rows.erase(1);
  CHECK_FALSE(taught_rows("teacher", packed, part, rows).ok());
}

TEST_CASE("what the llm's layers read besides rows follows from the plan's samples", "[engine]") {
  const Part part{2, 1, 0};
  const Fixture causal;
  const auto plain = pack_text_shapes(causal.graph, causal.samples, part).value();
  const auto at = [&](int i) { return causal.samples[static_cast<std::size_t>(i)].llm_tokens; };
  CHECK((plain.segments == Positions{at(2), at(1), at(0)}));
  CHECK(plain.mask == nullptr);
  REQUIRE(std::ssize(plain.positions) == at(2) + at(1) + at(0));
  CHECK(plain.positions[static_cast<std::size_t>(at(2) - 1)] == at(2) - 1);
  CHECK(plain.positions[static_cast<std::size_t>(at(2))] == 0);

  const Fixture fixture(AttentionRule::modality);
  const auto masked = pack_text_shapes(fixture.graph, fixture.samples, part).value();
  CHECK(masked.segments == plain.segments);
  CHECK(masked.positions == plain.positions);
  REQUIRE(masked.mask != nullptr);
  // <begin> <user>, then the picture's four rows; the one in the middle is text.
  CHECK((masked.mask->mask().samples() ==
         std::vector<TokenSample>{{at(2), {{2, 6}}}, {at(1), {}}, {at(0), {{2, 6}}}}));
}

TEST_CASE("media that stand elsewhere than planned are refused", "[engine][errors]") {
  Fixture fixture(AttentionRule::modality);
  CHECK(pack_text(fixture.graph, fixture.samples, Part{2, 0}, fixture.store).ok());
  fixture.samples[2].markers[0].text_before = 3;
  const auto moved = pack_text(fixture.graph, fixture.samples, Part{2}, fixture.store);
  REQUIRE_FALSE(moved.ok());
  CHECK_THAT(moved.error().message,
             Catch::Matchers::ContainsSubstring("'s2' has other text than planned"));
}

TEST_CASE("pictures follow one another as their samples do", "[engine]") {
  const Fixture fixture;
  const SampleUnits units(fixture.samples, {});
  const auto pack = [&](const Part& part) {
    return pack_media(fixture.graph, fixture.vision, units, part, fixture.store).value();
  };
  const auto both = pack({2, 1, 0});
  REQUIRE(both.size(0) == 32);
  CHECK(at::equal(both.narrow(0, 0, 16), pack({2})));
  CHECK(at::equal(both.narrow(0, 16, 16), pack({0})));
  CHECK_FALSE(at::equal(pack({2}), pack({0})));
}

/// A sample of three pictures, of which the second is that of sample 2.
SampleShape tripled(Fixture& fixture) {
  SampleShape shape = fixture.samples[0];
  auto content = std::make_shared<data::DecodedSample>(*fixture.store.find(shape.position));
  const auto other = fixture.store.find(fixture.samples[2].position);
  for (auto& items : content->images) {
    items.push_back(other->images[0][0]);
    items.push_back(items[0]);
  }
  auto& items = shape.media[0].items;
  items = {items[0], items[0], items[0]};
  items[1].marker = 1, items[2].marker = 2;
  shape.position = 1000;
  content->position = shape.position;
  fixture.store.put(shape.position, content);
  return shape;
}

TEST_CASE("a piece of a sample is packed as its items stand in the whole", "[engine]") {
  Fixture fixture;
  fixture.samples.push_back(tripled(fixture));
  const auto sample = static_cast<std::int32_t>(fixture.samples.size()) - 1;
  const std::vector<SamplePiece> pieces{{sample, fixture.vision, 0, 1},
                                        {sample, fixture.vision, 1, 2}};
  const SampleUnits units(fixture.samples, pieces);
  const auto pack = [&](const Part& part) {
    return pack_media(fixture.graph, fixture.vision, units, part, fixture.store).value();
  };
  const auto whole = pack({sample});
  REQUIRE(whole.size(0) == 48);
  CHECK_FALSE(at::equal(whole.narrow(0, 0, 16), whole.narrow(0, 16, 16)));
  CHECK(at::equal(pack({sample + 1}), whole.narrow(0, 0, 16)));
  CHECK(at::equal(pack({sample + 2}), whole.narrow(0, 16, 32)));
  const auto mixed = pack({sample + 2, 2, sample + 1});
  CHECK(at::equal(mixed.narrow(0, 0, 32), whole.narrow(0, 16, 32)));
  CHECK(at::equal(mixed.narrow(0, 48, 16), whole.narrow(0, 0, 16)));

  const auto spans = row_spans(fixture.graph, fixture.vision, RowKind::output, units.shapes(),
                               Part{sample + 2, sample + 1});
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].rows == 8);
  CHECK(spans[1].rows == 4);
  const auto shapes = pack_media_shapes(fixture.vision, units.shapes(), Part{sample + 2});
  CHECK(shapes.segments == Positions{16, 16});

  fixture.samples.back().media[0].items.push_back({16, 16, 4, 4, 4, 3});
  const std::vector<SamplePiece> beyond{{sample, fixture.vision, 2, 2}};
  const SampleUnits wrong(fixture.samples, beyond);
  CHECK_THAT(pack_media(fixture.graph, fixture.vision, wrong, Part{sample + 1}, fixture.store)
                 .error()
                 .message,
             Catch::Matchers::ContainsSubstring("other media than planned"));
}

TEST_CASE("segments of a batch are counted as its layers see them", "[engine]") {
  const Fixture fixture;
  Part all;
  for (std::size_t i = 0; i < fixture.samples.size(); ++i)
    all.push_back(static_cast<std::int32_t>(i));
  const auto media = pack_media_shapes(fixture.vision, fixture.samples, all);
  const auto text = pack_text_shapes(fixture.graph, fixture.samples, all).value();
  const auto count = [&](ModuleId module) {
    return segment_count(fixture.graph, module, fixture.samples);
  };
  REQUIRE(!media.segments.empty());
  CHECK(count(fixture.vision) == std::ssize(media.segments));
  CHECK(count(fixture.graph.at(fixture.vision).next.front()) == std::ssize(media.segments));
  CHECK(count(fixture.graph.llm()) == std::ssize(text.segments));
}

TEST_CASE("a sample that this node did not decode is named", "[engine][errors]") {
  const Fixture fixture;
  const SampleStore empty;
  const auto text = pack_text(fixture.graph, fixture.samples, Part{0}, empty);
  const auto media =
      pack_media(fixture.graph, fixture.vision, SampleUnits(fixture.samples, {}), Part{0}, empty);
  REQUIRE_FALSE((text.ok() || media.ok()));
  CHECK_THAT(text.error().message, Catch::Matchers::ContainsSubstring("'s0'"));
  CHECK_THAT(media.error().message, Catch::Matchers::ContainsSubstring("'s0'"));
}

}  // namespace
}  // namespace troupe::engine
