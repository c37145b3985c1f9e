#include "engine/iteration/amended_cut.hpp"

#include "engine/layout/choose_layout.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

const ModuleId kVision{0};

/// A planned iteration of samples with so many pictures each.
IterationPlan planned(std::vector<MicrobatchList> cut, const std::vector<std::int32_t>& pictures,
                      std::vector<SamplePiece> pieces = {}) {
  IterationPlan plan;
  for (const auto count : pictures) {
    auto& sample = plan.samples.emplace_back();
    if (count > 0)
      sample.media = {{kVision, std::vector<MediaShape>(static_cast<std::size_t>(count))}};
  }
  plan.pieces = std::move(pieces);
  plan.microbatches = std::move(cut);
  return plan;
}

std::vector<SampleShape> with_pictures(const std::vector<std::int32_t>& counts) {
  return planned({}, counts).samples;
}

TEST_CASE("samples that are gone leave their parts and microbatches, the others stay", "[engine]") {
  const auto plan = make_parallel_plan(prepare(tiny_job()).value()).value();
  // Two pipelines of an encoder and an llm: replicas 0 and 1, 2 and 3. Sample 2 is gone.
  const std::vector<MicrobatchList> cut{
      {{{{{0}}, {{2}}}}, {{{{1}}}}}, {{{{{0, 1}}}}, {{{{2}}}}}, {{{{{4, 3}}}}}, {{{{{3, 4}}}}}};
  const auto [microbatches, pieces, pipelines] = amend_cut(
      plan, planned(cut, {1, 0, 1, 1, 0}), with_pictures({1, 0, 1, 0}), {0, 1, std::nullopt, 2, 3});
  CHECK(pieces.empty());
  CHECK((microbatches ==
         std::vector<MicrobatchList>{
             {{{{{0}}}}, {{{{1}}}}}, {{{{{0, 1}}}}}, {{{{{3, 2}}}}}, {{{{{2, 3}}}}}}));
  CHECK((pipelines == std::vector<std::vector<std::int32_t>>{{0, 1}, {2, 3}}));
}

TEST_CASE("a pipeline whose samples are all gone has no microbatch", "[engine]") {
  const auto plan = make_parallel_plan(prepare(tiny_job()).value()).value();
  const std::vector<MicrobatchList> cut{{{{{{0}}}}}, {{{{{0}}}}}, {{{{{1}}}}}, {{{{{1}}}}}};
  const auto [microbatches, pieces, pipelines] =
      amend_cut(plan, planned(cut, {1, 1}), with_pictures({1}), {0, std::nullopt});
  CHECK(microbatches[2].empty());
  CHECK(microbatches[3].empty());
  CHECK(microbatches[0].size() == 1);
  CHECK((pipelines == std::vector<std::vector<std::int32_t>>{{0}, {}}));
}

/// Two pipelines of an encoder and an llm; the four pictures of sample 1 go in three pieces (units
/// 3 to 5), two of them on the other pipeline's encoder.
const std::vector<MicrobatchList> kInPieces{
    {{{{{0}}, {{3}}}}}, {{{{{0, 1}}}}}, {{{{{5, 2}}}}, {{{{4}}}}}, {{{{{2}}}}}};
const std::vector<SamplePiece> kPieces{{1, kVision, 0, 1}, {1, kVision, 1, 1}, {1, kVision, 2, 2}};

TEST_CASE("pieces go with their sample, and keep their places when others go", "[engine]") {
  const auto plan = make_parallel_plan(prepare(tiny_job()).value()).value();
  const auto before = planned(kInPieces, {1, 4, 1}, kPieces);
  const auto first = amend_cut(plan, before, with_pictures({4, 1}), {std::nullopt, 0, 1});
  CHECK((first.pieces ==
         std::vector<SamplePiece>{{0, kVision, 0, 1}, {0, kVision, 1, 1}, {0, kVision, 2, 2}}));
  CHECK((first.microbatches ==
         std::vector<MicrobatchList>{
             {{{{{2}}}}}, {{{{{0}}}}}, {{{{{4, 1}}}}, {{{{3}}}}}, {{{{{1}}}}}}));
  const auto own = amend_cut(plan, before, with_pictures({1, 1}), {0, std::nullopt, 1});
  CHECK(own.pieces.empty());
  CHECK((own.microbatches ==
         std::vector<MicrobatchList>{{{{{{0}}}}}, {{{{{0}}}}}, {{{{{1}}}}}, {{{{{1}}}}}}));
  CHECK((own.pipelines == std::vector<std::vector<std::int32_t>>{{0}, {1}}));
}

TEST_CASE("pieces are those of the items that turned out to be there", "[engine]") {
  const auto plan = make_parallel_plan(prepare(tiny_job()).value()).value();
  const auto before = planned(kInPieces, {1, 4, 1}, kPieces);
  const SamplePlaces all{0, 1, 2};
  const auto pieces = [&](std::int32_t pictures) {
    return amend_cut(plan, before, with_pictures({1, pictures, 1}), all).pieces;
  };
  using Pieces = std::vector<SamplePiece>;
  CHECK((pieces(6) == Pieces{{1, kVision, 0, 1}, {1, kVision, 1, 1}, {1, kVision, 2, 4}}));
  CHECK((pieces(3) == Pieces{{1, kVision, 0, 1}, {1, kVision, 1, 1}, {1, kVision, 2, 1}}));
  CHECK((pieces(2) == Pieces{{1, kVision, 0, 1}, {1, kVision, 1, 1}}));
  CHECK((pieces(1) == Pieces{{1, kVision, 0, 1}}));
  const auto two = amend_cut(plan, before, with_pictures({1, 2, 1}), all);
  CHECK((two.microbatches[2] == MicrobatchList{{{{{2}}}}, {{{{4}}}}}));
  // Without any it is text, and stands once in its group.
  const auto none = amend_cut(plan, before, with_pictures({1, 0, 1}), all);
  CHECK(none.pieces.empty());
  CHECK((none.microbatches[0] == MicrobatchList{{{{{0}}, {{1}}}}}));
  CHECK((none.microbatches[2] == MicrobatchList{{{{{2}}}}}));
}

}  // namespace
}  // namespace troupe::engine
