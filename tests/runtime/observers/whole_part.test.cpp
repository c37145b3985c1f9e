#include "runtime/observers/whole_part.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace troupe::observers {
namespace {

using Counts = std::vector<std::int64_t>;

TEST_CASE("a part is whole where its values are those of its rows", "[observers]") {
  const std::vector<float> numbers(6);
  Observed part;  // By hand: (2 + 1) x 2 values.
  part.ids = {"a", "b"};
  part.rows = {2, 1};
  part.first_rows = {0, 4};
  part.width = 2;
  part.values = {nullptr, numbers.data(), numbers.size(), Dtype::fp32};
  CHECK(is_whole(part));
  const auto with_rows = [&part](Counts rows) {
    Observed odd = part;
    odd.rows = std::move(rows);
    return is_whole(odd);
  };
  CHECK(with_rows({0, 3}));
  for (const Counts& rows : {Counts{2, 2}, Counts{1, 1}, Counts{4, -1}, Counts{3}, Counts{}})
    CHECK_FALSE(with_rows(rows));
  const auto with_first_rows = [&part](Counts rows) {
    Observed odd = part;
    odd.first_rows = std::move(rows);
    return is_whole(odd);
  };
  for (const Counts& rows : {Counts{0}, Counts{0, -1}}) CHECK_FALSE(with_first_rows(rows));
  const auto with_width = [&part](std::int64_t width) {
    Observed odd = part;
    odd.width = width;
    return is_whole(odd);
  };
  for (const std::int64_t width : {3, 1, 0, -2}) CHECK_FALSE(with_width(width));
  part.ids.emplace_back("c");
  part.first_rows.push_back(0);
  CHECK(with_rows({1, 1, 1}));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK_FALSE(with_rows({kMost, kMost, 5}));  // By hand: 2^64 - 2 and 5 are 3 again.
  Observed nothing;
  nothing.width = 1;
  CHECK(is_whole(nothing));
}

}  // namespace
}  // namespace troupe::observers
