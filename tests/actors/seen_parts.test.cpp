#include "actors/observing/seen_parts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace troupe::actors {
namespace {

using observers::Observed;
using observers::ObservedStep;

/// What an observer saw: `1 vision 3` of a part of three values, `step 1`.
class Noting final : public observers::Observer {
 public:
  std::vector<std::string> seen;
  std::vector<double> values;

  void see(const Observed& part) override {
    seen.push_back(std::to_string(part.step) + " " + part.module + " " +
                   std::to_string(part.values.size()));
    for (std::size_t i = 0; i < part.values.size(); ++i) values.push_back(part.values[i]);
  }
  void see(const ObservedStep& step) override {
    seen.push_back("step " + std::to_string(step.step));
  }
};

using Words = std::vector<std::string>;

/// Values of a part of one sample, as a piece of it.
SeenPiece piece(std::int32_t node, std::int64_t step, std::vector<double> values,
                std::size_t begin = 0, std::size_t all = 0) {
  SeenPiece piece;
  piece.node = node;
  piece.step = step;
  piece.module = "vision";
  piece.dtype = static_cast<std::uint8_t>(Dtype::fp64);
  piece.begin = 8 * begin;
  piece.bytes_all = 8 * (all > 0 ? all : values.size());
  if (begin == 0) {
    piece.ids = {"a"};
    piece.rows = {static_cast<std::int64_t>(piece.bytes_all / 8)};
    piece.first_rows = {3};
  }
  piece.width = 1;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  piece.bytes.assign(bytes, bytes + 8 * values.size());
  return piece;
}

SeenStep word(std::int32_t node, std::int64_t step, std::int64_t dropped = 0) {
  SeenStep word;
  word.node = node;
  word.step = step;
  word.dropped = dropped;
  return word;
}

struct Fixture {
  Noting noting;
  SeenParts seen{noting};

  void nodes(const std::vector<std::int32_t>& nodes) {
    seen.begin(nodes);
    for (const std::int32_t node : nodes) seen.here(node, 1);
  }
};

TEST_CASE("parts are put together bit by bit", "[actors]") {
  Fixture fixture;
  fixture.nodes({0, 1});
  fixture.seen.take(piece(0, 1, {1.5, 2}, 0, 5));
  fixture.seen.take(piece(1, 1, {9}));
  fixture.seen.take(piece(0, 1, {0.1, 4}, 2, 5));
  fixture.seen.take(piece(0, 1, {5}, 4, 5));
  CHECK(fixture.noting.seen == Words{"1 vision 1", "1 vision 5"});
  CHECK(fixture.noting.values == std::vector<double>{9, 1.5, 2, 0.1, 4, 5});
  CHECK(fixture.seen.parts() == 2);
}

TEST_CASE("the word on a step is said once, behind the parts of all nodes", "[actors]") {
  Fixture fixture;
  fixture.nodes({0, 1});
  fixture.seen.take(piece(0, 1, {1}));
  fixture.seen.take(word(0, 1));
  fixture.seen.take(word(0, 2));
  CHECK(fixture.noting.seen == Words{"1 vision 1"});
  fixture.seen.take(piece(1, 1, {1, 2}));
  fixture.seen.take(word(1, 1));
  CHECK(fixture.noting.seen == Words{"1 vision 1", "1 vision 2", "step 1"});
  fixture.seen.gone(1);  // Nobody waits for it any more.
  CHECK(fixture.noting.seen.back() == "step 2");
  CHECK(fixture.seen.steps() == 2);
}

TEST_CASE("a node that has no part in the layout is not waited for", "[actors]") {
  Fixture fixture;
  fixture.nodes({0, 1});
  fixture.seen.take(word(0, 1));
  fixture.seen.take(word(0, 2));
  CHECK(fixture.noting.seen.empty());
  fixture.seen.take(word(0, 3));
  CHECK(fixture.noting.seen == Words{"step 1"});
  fixture.seen.take(word(0, 4));
  CHECK(fixture.noting.seen == Words{"step 1", "step 2"});
  fixture.seen.take(word(1, 4));  // It has one now; what was said is not said again.
  CHECK(fixture.noting.seen == Words{"step 1", "step 2", "step 3", "step 4"});
}

TEST_CASE("a node that has lost its part in the layout is not waited for any more", "[actors]") {
  Fixture fixture;
  fixture.nodes({0, 1});
  fixture.seen.take(word(0, 1));
  fixture.seen.take(word(1, 1, 3));
  fixture.seen.take(word(0, 2));
  CHECK(fixture.noting.seen == Words{"step 1"});
  fixture.seen.here(1, 2);
  for (std::int64_t step = 3; step <= 9; ++step) fixture.seen.take(word(0, step));
  CHECK(fixture.noting.seen.back() == "step 7");
  CHECK(fixture.seen.missed() == 3);  // It is counted still.
  fixture.seen.take(word(1, 8, 4));   // It has a part again.
  CHECK(fixture.noting.seen.back() == "step 8");
  CHECK(fixture.seen.missed() == 4);
}

TEST_CASE("a node that shows something is waited for, however far behind its word is", "[actors]") {
  Fixture fixture;
  fixture.nodes({0, 1});
  fixture.seen.take(piece(1, 1, {1}));
  for (std::int64_t step = 1; step <= 9; ++step) fixture.seen.take(word(0, step));
  CHECK(fixture.noting.seen == Words{"1 vision 1"});
  fixture.seen.take(word(1, 8, 70));  // Those between found no room.
  CHECK(fixture.noting.seen.back() == "step 8");
  CHECK(fixture.seen.missed() == 70);
}

TEST_CASE("steps that a node did not show from their beginning are left out", "[actors]") {
  Fixture fixture;
  fixture.seen.begin({0, 1});
  fixture.seen.here(0, 5);
  CHECK(fixture.seen.waits_for_nodes());
  for (std::int64_t step : {5, 6}) {
    fixture.seen.take(piece(0, step, {1}));
    fixture.seen.take(word(0, step));
  }
  CHECK(fixture.noting.seen.empty());
  fixture.seen.here(1, 6);
  CHECK_FALSE(fixture.seen.waits_for_nodes());
  fixture.seen.take(word(1, 6));
  CHECK(fixture.noting.seen == Words{"6 vision 1", "step 6"});
  fixture.seen.here(2, 9);  // It came late: others show what they showed.
  fixture.seen.take(piece(0, 7, {1, 2}));
  fixture.seen.take(word(0, 7));
  fixture.seen.take(word(1, 7));
  CHECK(fixture.noting.seen.back() == "step 7");
}

TEST_CASE("a node that is gone before it said anything is waited for no longer", "[actors]") {
  Fixture fixture;
  fixture.seen.begin({0, 1});
  fixture.seen.here(0, 1);
  fixture.seen.take(piece(0, 1, {1}));
  fixture.seen.gone(1);
  CHECK(fixture.noting.seen == Words{"1 vision 1"});
}

TEST_CASE("what makes no sense is left out and counted", "[actors][errors]") {
  Fixture fixture;
  fixture.nodes({0});
  fixture.seen.take(piece(7, 1, {1}));  // Nobody's.
  auto wide = piece(0, 1, {1, 2});
  wide.width = 2;  // Two rows of two need four.
  fixture.seen.take(wide);
  auto rows = piece(0, 1, {1});
  rows.rows = {-1};
  fixture.seen.take(rows);
  fixture.seen.take(piece(0, 1, {1}, 0, 3));
  fixture.seen.take(piece(0, 1, {3}, 2, 3));  // One in between is missing.
  fixture.seen.take(piece(0, 1, {3}, 1, 3));  // Of none.
  auto odd = piece(0, 1, {1});
  odd.kind = odd.dtype = 200;
  odd.bytes.pop_back();
  odd.bytes_all = 7;
  fixture.seen.take(odd);
  CHECK(fixture.noting.seen.empty());
  CHECK(fixture.seen.broken() == 4);
  fixture.seen.take(piece(0, 1, {1}));
  CHECK(fixture.noting.seen == Words{"1 vision 1"});
}

TEST_CASE("what was dropped is added up over nodes and heads", "[actors]") {
  Fixture fixture;
  fixture.nodes({0, 1});
  fixture.seen.take(word(0, 1, 3));
  fixture.seen.take(word(1, 1, 4));
  fixture.seen.take(word(1, 2, 6));
  CHECK(fixture.seen.missed() == 9);
  fixture.seen.gone(0);
  CHECK(fixture.seen.missed() == 9);
  fixture.seen.end();
  CHECK(fixture.noting.seen == Words{"step 1", "step 2"});
  fixture.nodes({0});
  fixture.seen.take(word(0, 2, 1));
  CHECK(fixture.seen.missed() == 10);
  CHECK(fixture.noting.seen.back() == "step 2");  // It was trained again, under the next head.
}

}  // namespace
}  // namespace troupe::actors
