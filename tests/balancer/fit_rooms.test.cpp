#include "balancer/ranks/fit_rooms.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <random>
#include <vector>

namespace troupe::balancer {
namespace {

using Places = std::vector<std::size_t>;

/// Items of some work and size, and ranks with so much room for them.
struct Case {
  std::vector<RoomItem> items;
  std::vector<double> sizes;
  std::vector<double> rooms;

  double share(std::size_t item, std::size_t rank) const { return sizes[item] / rooms[rank]; }
  std::size_t ranks() const { return rooms.size(); }

  std::optional<NoRoom> fit(Places& places) const {
    const FirstToFinish<double> loads(std::vector<double>(ranks(), 1));
    return fit_rooms(
        items, [this](std::size_t item, std::size_t rank) { return share(item, rank); }, loads,
        places);
  }

  /// Whether no rank has more of a slot than its room.
  bool fits(const Places& places) const {
    for (std::size_t slot = 0; slot < 3; ++slot)
      for (std::size_t r = 0; r < ranks(); ++r) {
        double size = 0;
        for (std::size_t i = 0; i < items.size(); ++i)
          if (places[i] == r && items[i].slot == slot) size += sizes[i];
        if (size > rooms[r]) return false;
      }
    return true;
  }

  /// Whether it does for some places.
  bool can_fit() const {
    Places places(items.size(), 0);
    for (;;) {
      if (fits(places)) return true;
      std::size_t i = 0;
      while (i < places.size() && ++places[i] == ranks()) places[i++] = 0;
      if (i == places.size()) return false;
    }
  }

  double last_end(const Places& places) const {
    std::vector<double> loads(ranks());
    for (std::size_t i = 0; i < items.size(); ++i) loads[places[i]] += items[i].work;
    return *std::max_element(loads.begin(), loads.end());
  }
};

TEST_CASE("of a rank that is too full the smallest item leaves that is enough", "[balancer]") {
  // Rank 0 has 12 of 8: 4 is enough, 2 is not, and 6 is more than need be.
  const Case three{{{3, 0}, {3, 0}, {0.01, 0}}, {6, 4, 2}, {8, 8}};
  Places places{0, 0, 0};
  CHECK_FALSE(three.fit(places));
  CHECK((places == Places{0, 1, 0}));
  // In slots of their own 6 and 4 are never there together.
  const Case apart{{{6, 0}, {4, 1}, {2, 1}}, {6, 4, 2}, {8, 8}};
  places = {0, 0, 0};
  CHECK_FALSE(apart.fit(places));
  CHECK((places == Places{0, 0, 0}));
}

TEST_CASE("what leaves goes where it is done first", "[balancer]") {
  // 3 of 9 is enough; rank 1 has 5 of work, rank 2 has 1.
  const Case three{{{6, 0}, {3, 0}, {5, 0}, {1, 0}}, {6, 3, 1, 1}, {8, 8, 8}};
  Places places{0, 0, 1, 2};
  CHECK_FALSE(three.fit(places));
  CHECK((places == Places{0, 2, 1, 2}));
}

TEST_CASE("where taking off is not enough all are packed anew", "[balancer]") {
  // Rank 0 has 9 of 8, rank 1 room for 1 alone; 5 + 3 and 4 + 4 have room.
  const Case full{{{1, 0}, {1, 0}, {1, 0}, {1, 0}}, {5, 4, 4, 3}, {8, 8}};
  Places places{0, 0, 1, 1};
  CHECK_FALSE(full.fit(places));
  CHECK(full.fits(places));
  CHECK((places == Places{0, 1, 1, 0}));
}

TEST_CASE("where no rank has room for an item another one makes way", "[balancer]") {
  // First a 5 goes into the room for 8, where it leaves less, then one into that for 10. 6 has room
  // beside neither; the first 5 can be with the other one, and 6 with 2.
  const Case full{{{1, 0}, {1, 0}, {1, 0}, {1, 0}}, {6, 2, 5, 5}, {8, 10}};
  Places places{0, 0, 0, 0};
  CHECK_FALSE(full.fit(places));
  CHECK((places == Places{0, 0, 1, 1}));
}

TEST_CASE("an item that finds no room is named, with who would be least too full", "[balancer]") {
  const Case full{{{1, 0}, {1, 0}, {1, 0}}, {7, 9, 6}, {8, 12}};
  Places places{0, 0, 0};
  const auto left = full.fit(places);
  REQUIRE(left);
  // 9 is in the room for 12, 7 in that for 8: 6 more are 13 of 8, or 15 of 12.
  CHECK(left->item == 2);
  CHECK(left->rank == 1);
  CHECK(left->filled == 15.0 / 12);
  CHECK((places == Places{0, 0, 0}));
}

TEST_CASE("with room for all, whoever ends last hands work on", "[balancer]") {
  // The item that leaves is nearly all of the size and a tenth of the work.
  const Case uneven{{{1, 0}, {4, 0}, {5, 0}}, {5, 0.5, 0.5}, {5.4, 8}};
  Places places{0, 0, 0};
  CHECK_FALSE(uneven.fit(places));
  CHECK(uneven.fits(places));
  CHECK((places == Places{1, 1, 0}));
  CHECK(uneven.last_end(places) == 5);
}

TEST_CASE("no rank is fuller than its room, and what fits stays", "[balancer][property]") {
  std::mt19937_64 random(7);
  int changed = 0, missed = 0, impossible = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    Case drawn;
    const std::size_t ranks = 1 + random() % 3, count = 1 + random() % 7, slots = 1 + random() % 2;
    for (std::size_t r = 0; r < ranks; ++r)
      drawn.rooms.push_back(static_cast<double>(8 + random() % 9));
    Places places;
    for (std::size_t i = 0; i < count; ++i) {
      drawn.items.push_back({static_cast<double>(1 + random() % 9), random() % slots});
      drawn.sizes.push_back(static_cast<double>(random() % 10));
      places.push_back(random() % ranks);
    }
    const Places before = places;
    const auto left = drawn.fit(places);
    if (left) {
      REQUIRE(left->filled > 1);
      REQUIRE(places == before);
      (drawn.can_fit() ? missed : impossible) += 1;
      continue;
    }
    REQUIRE(drawn.fits(places));
    if (drawn.fits(before)) REQUIRE(places == before);
    changed += places != before ? 1 : 0;
    Places again = before;
    drawn.fit(again);
    REQUIRE(again == places);
  }
  CHECK(changed > 200);
  CHECK(impossible > 200);
  CHECK(missed * 10 < changed);  // Packing is a heuristic.
}

}  // namespace
}  // namespace troupe::balancer
