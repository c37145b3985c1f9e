#include "engine/iteration/item_ranges.hpp"

#include <map>
#include <random>

#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

const ModuleId kVision{0}, kAudio{1};

/// A group of both encoders with so many replicas, and an llm.
ParallelPlan plan_of(std::size_t encoders) {
  ParallelPlan plan;
  plan.model.modules.resize(3);
  for (const ModuleId module : {kVision, kAudio})
    plan.model.modules[module.index()].kind = ModuleKind::encoder;
  plan.module_groups = {{"vision+audio", {kVision, kAudio}}, {"llm", {ModuleId{2}}}};
  for (std::size_t r = 0; r < encoders; ++r) plan.replicas.push_back({ModuleGroupId{0}, {}, {}});
  plan.replicas.push_back({ModuleGroupId{1}, {}, {}});
  return plan;
}

std::vector<MediaShape> items(const std::vector<std::int32_t>& rows) {
  std::vector<MediaShape> made;
  for (const auto own : rows) made.push_back({own, own, own, 0, 0, 0});
  return made;
}

/// Phases of samples that take as long as they have rows.
std::vector<PhaseWork> phases_of(const std::vector<SampleShape>& samples, std::size_t encoders) {
  std::vector<PhaseWork> phases(2);
  for (const auto& sample : samples) {
    phases[0].samples.push_back(
        static_cast<double>(sample.hidden_rows(kVision) + sample.hidden_rows(kAudio)));
    phases[1].samples.push_back(1);
  }
  phases[0].shares.assign(encoders, 1);
  phases[1].shares.assign(1, 1);
  return phases;
}

std::vector<SamplePiece> cut(const std::vector<SampleShape>& samples, std::size_t encoders,
                             std::int64_t rounds = 1) {
  return cut_into_pieces(plan_of(encoders), samples, phases_of(samples, encoders), rounds);
}

SampleShape sample(const std::vector<std::int32_t>& pictures,
                   const std::vector<std::int32_t>& windows = {}) {
  SampleShape made;
  if (!pictures.empty()) made.media.push_back({kVision, items(pictures)});
  if (!windows.empty()) made.media.push_back({kAudio, items(windows)});
  return made;
}

using Pieces = std::vector<SamplePiece>;

TEST_CASE("a sample is cut where it takes more than a quarter of a replica's round", "[engine]") {
  // 24 rows in all, 12 for each of two replicas: quarters of 3.
  const std::vector<SampleShape> samples{sample({1, 1, 1}), sample({2, 2}), sample({7}),
                                         sample({3, 3, 4})};
  CHECK((cut(samples, 2) == Pieces{{1, kVision, 0, 1},
                                   {1, kVision, 1, 1},
                                   {3, kVision, 0, 1},
                                   {3, kVision, 1, 1},
                                   {3, kVision, 2, 1}}));
  // One picture cannot be cut, three of one row are as much as a quarter and not more; of two
  // rounds a replica has half as much in each.
  CHECK(cut(samples, 2, 2).size() == 2 + 2 + 3);
  CHECK(cut(samples, 1).empty());
}

TEST_CASE("where a teacher reads with the encoders, samples stay whole", "[engine]") {
  const std::vector<SampleShape> samples{sample({3, 3, 4}), sample({7})};
  auto plan = plan_of(2);
  CHECK(cut_into_pieces(plan, samples, phases_of(samples, 2), 1).size() == 3);
  plan.model.modules[kAudio.index()].kind = ModuleKind::teacher;
  CHECK(cut_into_pieces(plan, samples, phases_of(samples, 2), 1).empty());
}

TEST_CASE("pieces have about as many rows, at most two for each replica", "[engine]") {
  const std::vector<SampleShape> samples{sample(std::vector<std::int32_t>(30, 5))};
  const auto pieces = cut(samples, 3);
  REQUIRE(pieces.size() == 6);
  for (const auto& piece : pieces) CHECK(piece.count == 5);
  // Ranges end where a share of the rows does, not of the items: 12 of 20 are the first.
  const std::vector<SampleShape> uneven{sample({12, 1, 1, 1, 1, 2, 2})};
  CHECK((cut(uneven, 2) == Pieces{{0, kVision, 0, 1}, {0, kVision, 1, 3}, {0, kVision, 4, 3}}));
}

TEST_CASE("pictures and windows of a sample are apart, each with its share of the pieces",
          "[engine]") {
  const std::vector<SampleShape> samples{sample({6, 6, 6, 6, 6, 6}, {6, 6}), sample({4}, {4})};
  CHECK((cut(samples, 2) == Pieces{{0, kVision, 0, 2},
                                   {0, kVision, 2, 2},
                                   {0, kVision, 4, 2},
                                   {0, kAudio, 0, 2},
                                   {1, kVision, 0, 1},
                                   {1, kAudio, 0, 1}}));
  // A picture and a window: two pieces where they are much.
  CHECK((cut({sample({4}, {4})}, 2) == Pieces{{0, kVision, 0, 1}, {0, kAudio, 0, 1}}));
}

TEST_CASE("every item of a cut sample is in one piece", "[engine][property]") {
  std::mt19937 random(5);
  for (int turn = 0; turn < 500; ++turn) {
    std::vector<SampleShape> samples;
    const auto drawn = [&] {
      std::vector<std::int32_t> rows;
      for (auto left = random() % 9; left > 0; --left)
        rows.push_back(static_cast<std::int32_t>(random() % 30));
      return rows;
    };
    for (auto left = 1 + random() % 8; left > 0; --left)
      samples.push_back(sample(drawn(), drawn()));
    const std::size_t replicas = 2 + random() % 4;
    std::map<std::pair<std::int32_t, ModuleId>, std::int32_t> next;
    std::map<std::int32_t, std::size_t> count;
    for (const SamplePiece& piece : cut(samples, replicas, 1 + random() % 4)) {
      REQUIRE(is_sound(piece, samples));
      CHECK(piece.first == next[{piece.sample, piece.module}]);
      next[{piece.sample, piece.module}] += piece.count;
      ++count[piece.sample];
    }
    for (const auto& [index, pieces] : count) {
      CHECK(pieces >= 2);
      CHECK(pieces <= 2 * replicas + 1);  // Shares of two encoders are rounded.
      for (const auto& media : samples[static_cast<std::size_t>(index)].media)
        CHECK(next[{index, media.module}] == std::ssize(media.items));
    }
  }
}

}  // namespace
}  // namespace troupe::engine
