#include "scheduler/simulate/room_division.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

/// 16 microbatches of both sides, one byte in an encoder, `llm_bytes` in the llm.
RoomDemand sixteen(double llm_bytes, double depth) {
  RoomDemand demand;
  demand.encoder_bytes = 1;
  demand.encoder_microbatches = demand.llm_microbatches = 16;
  demand.llm_bytes = llm_bytes;
  demand.depth = depth;
  return demand;
}

TEST_CASE("encoders leave the llm what they have no use for", "[scheduler]") {
  // Halves of 32 bytes would be sixteen microbatches of the encoder and four of the llm's eight in
  // flight: 1 + 15 / 4 round trips. With six in flight eight bytes are left: 2 + 14 / 6 = 4.33.
  // Five: twelve bytes, 2 + 14 / 5; seven: four bytes, 4 + 12 / 7.
  const auto kept = divide_room(32, sixteen(4, 8));
  CHECK(kept.in_flight == 6);
  CHECK(kept.width == 8);
  CHECK(kept.windows == 2);
  CHECK(kept.held_back == Approx(8.0 / 6));
  // Room for all: one window, and the depth.
  CHECK(divide_room(48, sixteen(4, 8)).in_flight == 8);
  CHECK(divide_room(48, sixteen(4, 8)).windows == 1);
  CHECK(divide_room(48, sixteen(4, 8)).held_back == 1);
}

TEST_CASE("windows that cannot be cut have their room before the llm has more in flight",
          "[scheduler]") {
  // As above encoders keep eight with six in flight. With five they keep twelve, 2 + 14 / 5, which
  // takes longer than sixteen with four: 1 + 15 / 4.
  auto demand = sixteen(4, 8);
  demand.least_width = 8;
  CHECK(divide_room(32, demand).in_flight == 6);
  demand.least_width = 9;
  CHECK(divide_room(32, demand).in_flight == 4);
  CHECK(divide_room(32, demand).width == 16);
  demand.least_width = 16;
  // Of 16 bytes one in flight leaves twelve: no schedule will keep that, and none is promised more.
  CHECK(divide_room(16, demand).in_flight == 1);
  CHECK(divide_room(16, demand).width == 12);
}

TEST_CASE("the llm leaves encoders what it has no use for", "[scheduler]") {
  // Half of 20 bytes would be ten microbatches of the encoder: two windows.
  const auto kept = divide_room(20, sixteen(1, 4));
  CHECK(kept.width == 16);
  CHECK(kept.windows == 1);
  CHECK(kept.in_flight == 4);
}

TEST_CASE("of as good divisions the one with more in flight is taken", "[scheduler]") {
  // Two in flight leave one byte, 16 windows; one leaves two, 8 + 8 / 1.
  CHECK(divide_room(3, sixteen(1, 2)).in_flight == 2);
  CHECK(divide_room(3, sixteen(1, 2)).windows == 16);
}

TEST_CASE("a device of one side alone keeps what fits", "[scheduler]") {
  RoomDemand llm;
  llm.llm_bytes = 4;
  llm.llm_microbatches = 16;
  llm.depth = 8;
  CHECK(divide_room(21, llm).in_flight == 5);
  CHECK(divide_room(21, llm).windows == 1);
  CHECK(divide_room(3, llm).in_flight == 1);
  RoomDemand encoder;
  encoder.encoder_bytes = 4;
  encoder.encoder_microbatches = 16;
  CHECK(divide_room(21, encoder).width == 5);
  CHECK(divide_room(21, encoder).windows == 4);
  CHECK(divide_room(21, encoder).held_back == 1);
  CHECK(divide_room(3, encoder).width == 1);
  encoder.encoder_bytes = 0;
  CHECK(divide_room(0, encoder).windows == 1);
  // Nor has an encoder that keeps nothing narrower windows where the llm lacks room.
  encoder.llm_bytes = 4;
  CHECK(divide_room(3, encoder).windows == 1);
  CHECK(divide_room(3, encoder).width >= 16);
}

TEST_CASE("parameters that leave make room for the llm, not for encoders", "[scheduler]") {
  // Alone the encoder has 20 bytes, which it fills; beside them eight more are the llm's.
  auto demand = sixteen(4, 2);
  demand.encoder_microbatches = 20;
  demand.leaving_bytes = 8;
  CHECK(divide_room(20, demand).width == 20);
  CHECK(divide_room(20, demand).in_flight == 2);
  demand.leaving_bytes = 100;
  CHECK(divide_room(20, demand).width == 20);
  // What is there once takes none of it per microbatch.
  demand.leaving_bytes = 8;
  demand.once_bytes = 15;
  CHECK(divide_room(20, demand).width == 5);
  CHECK(divide_room(20, demand).in_flight == 2);
}

/// Six microbatches of ten bytes.
StageDemand six(bool is_llm, RowBytes rows) {
  StageDemand stage;
  stage.is_llm = is_llm;
  stage.microbatch_bytes = 10;
  stage.rows = rows;
  stage.microbatches = 6;
  stage.depth = 4;
  return stage;
}

TEST_CASE("what stages want of a device adds up, and rows count where encoders are",
          "[scheduler]") {
  RoomDemand demand;
  demand.add(six(true, {2, 3}));
  // An llm alone keeps the rows that it has begun with, and none wait for it there.
  CHECK(demand.with_rows().llm_bytes == 10);
  CHECK(demand.with_rows().encoder_bytes == 0);
  CHECK(demand.depth == 4);
  auto encoder = six(false, {1, 4});
  encoder.microbatches = 2;
  encoder.offloaded_bytes = 7;
  demand.add(encoder);
  // Six times three bytes wait, nine for each of the encoder's two; what is taken is of these.
  CHECK(demand.with_rows().encoder_bytes == 10 - 7 + 9);
  CHECK(demand.with_rows().llm_bytes == 10 - 2);
  CHECK(demand.once_bytes == 7);
  CHECK(demand.encoder_microbatches == 2);
  CHECK(demand.llm_microbatches == 6);
  // The gradients of three encoders are more: twelve.
  for (int more = 0; more < 2; ++more) demand.add(encoder);
  CHECK(demand.with_rows().encoder_bytes == 3 * (10 - 7) + 12);
  // None has more in flight than there are.
  auto deep = six(true, {});
  deep.depth = 9;
  demand.add(deep);
  CHECK(demand.depth == 6);
  // Beside 21 that are there once, 60 bytes are 21 of the encoders' and 18 of both stages of the
  // llm: two windows of one. Without rows there would be room for two microbatches of encoders.
  CHECK(divide_room(60, demand).width == 1);
  CHECK(divide_room(60, demand).windows == 2);
  CHECK(divide_room(60, demand).in_flight == 1);
  CHECK(divide_room(60 + 18, demand).in_flight == 2);
}

TEST_CASE("where the llm is alone rows of encoders elsewhere wait for it", "[scheduler]") {
  auto llm = six(true, {2, 3, true});
  llm.encoded = 2;
  RoomDemand demand;
  demand.add(llm);
  // Six times three bytes wait, nine for each of two that are encoded.
  CHECK(demand.with_rows().encoder_bytes == 9);
  CHECK(demand.with_rows().llm_bytes == 10 - 2);
  CHECK(demand.with_rows().encoder_microbatches == 2);
  // Four in flight leave 18 of 50 bytes, all rows.
  CHECK(divide_room(50, demand).in_flight == 4);
  CHECK(divide_room(50, demand).width == 2);
  // Of 40 three leave 16, two windows, 2 + 4 / 3 round trips; two leave 24: 1 + 5 / 2.
  CHECK(divide_room(40, demand).in_flight == 3);
  CHECK(divide_room(40, demand).width == 1);
  // What cannot be cut has its room first.
  llm.least_width = 2;
  demand = {};
  demand.add(llm);
  CHECK(divide_room(40, demand).in_flight == 2);
  CHECK(divide_room(40, demand).width == 2);
  // Encoders to which nothing goes back do not wait for windows: 18 are there once.
  llm.rows.go_back = false;
  demand = {};
  demand.add(llm);
  CHECK(demand.with_rows().encoder_bytes == 0);
  CHECK(demand.with_rows().once_bytes == 18);
  CHECK(divide_room(40, demand).in_flight == 2);
  CHECK(divide_room(40, demand).windows == 1);
  CHECK(divide_room(50, demand).in_flight == 4);
  // On an encoder's device their own list does.
  demand.add(six(false, {}));
  CHECK(demand.with_rows().encoder_bytes == 10 + 3);
  CHECK(demand.with_rows().once_bytes == 0);
}

/// Least time, as room_division.hpp describes it, over all that the llm could have in flight.
double brute_force(double room, const RoomDemand& demand) {
  double least = std::numeric_limits<double>::infinity();
  for (int in_flight = 1; in_flight <= demand.depth; ++in_flight)
    for (int width = static_cast<int>(demand.least_width); width <= demand.encoder_microbatches;
         ++width) {
      const double encoders = width * demand.encoder_bytes + demand.once_bytes;
      if (encoders > room) continue;
      if (encoders + in_flight * demand.llm_bytes > room + demand.leaving_bytes) continue;
      const double windows = std::ceil(demand.encoder_microbatches / width);
      const double behind = std::max(0.0, demand.llm_microbatches - windows);
      least = std::min(least, windows * demand.depth + behind * demand.depth / in_flight);
    }
  return least;
}

TEST_CASE("no division of a device's room takes less, and none is more than it",
          "[scheduler][property]") {
  int short_of_room = 0, better_than_halves = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    RoomDemand demand;
    demand.encoder_bytes = draw(random, 1, 12);
    demand.encoder_microbatches = draw(random, 1, 20);
    demand.llm_bytes = draw(random, 1, 12);
    demand.llm_microbatches = draw(random, 1, 20);
    demand.depth = draw(random, 1, 10);
    if (seed % 3 == 0) demand.once_bytes = draw(random, 0, 10);
    if (seed % 5 == 0) demand.leaving_bytes = draw(random, 0, 30);
    const double room = draw(random, 0, 120);
    if (seed % 4 == 0)
      demand.least_width =
          draw(random, 1, std::min(4, static_cast<int>(demand.encoder_microbatches)));
    const RoomDivision kept = divide_room(room, demand);
    REQUIRE(kept.width >= 1);
    REQUIRE(kept.in_flight >= 1);
    REQUIRE(kept.in_flight <= demand.depth);
    CHECK(kept.windows == std::ceil(demand.encoder_microbatches / kept.width));
    CHECK(kept.held_back == demand.depth / kept.in_flight);
    const double least = brute_force(room, demand);
    if (std::isinf(least)) {  // Not even one of each, or of a window that cannot be cut.
      CHECK(kept.width <= std::max(1.0, demand.least_width - 1));
      CHECK(kept.in_flight == 1);
      continue;
    }
    CHECK(kept.width >= demand.least_width);
    const double encoders = kept.width * demand.encoder_bytes + demand.once_bytes;
    CHECK(encoders <= room);
    CHECK(encoders + kept.in_flight * demand.llm_bytes <= room + demand.leaving_bytes);
    const auto time = [&](double windows, double in_flight) {
      return windows * demand.depth +
             std::max(0.0, demand.llm_microbatches - windows) * demand.depth / in_flight;
    };
    const double taken = time(kept.windows, kept.in_flight);
    REQUIRE(taken == Approx(least));
    short_of_room += taken > time(1, demand.depth) ? 1 : 0;
    const double width = std::floor(room / 2 / demand.encoder_bytes);
    const double in_flight = std::min(demand.depth, std::floor(room / 2 / demand.llm_bytes));
    if (width < demand.least_width || in_flight < 1 || seed % 3 == 0) continue;
    const double halves = time(std::ceil(demand.encoder_microbatches / width), in_flight);
    CHECK(taken <= halves * (1 + 1e-12));
    better_than_halves += taken < halves * (1 - 1e-9) ? 1 : 0;
  }
  CHECK(short_of_room > 300);
  CHECK(better_than_halves > 300);
}

}  // namespace
}  // namespace troupe::scheduler
