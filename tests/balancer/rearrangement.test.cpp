#include "balancer/ranks/rearrangement.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runtime/vocabulary/random.hpp"

namespace troupe::balancer {
namespace {

using Catch::Matchers::ContainsSubstring;
using Sources = std::vector<std::vector<ItemRef>>;

// Items named by their place, so that where one ended up can be read off.
std::vector<std::vector<int>> labels(std::span<const std::int32_t> sizes) {
  std::vector<std::vector<int>> values;
  int next = 0;
  for (const auto size : sizes) {
    values.emplace_back();
    for (std::int32_t i = 0; i < size; ++i) values.back().push_back(next++);
  }
  return values;
}

Rearrangement random_rearrangement(Random& random, const std::vector<std::int32_t>& sizes) {
  std::vector<ItemRef> items;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    for (std::int32_t i = 0; i < sizes[rank]; ++i)
      items.push_back({static_cast<std::int32_t>(rank), i});
  random.shuffle(items);
  Sources sources(sizes.size());
  for (const auto& item : items) sources[random.below(sizes.size())].push_back(item);
  return Rearrangement::create(sources, sizes.size()).value();
}

std::vector<std::int32_t> batch_sizes(const Rearrangement& r) {
  std::vector<std::int32_t> sizes;
  for (std::size_t b = 0; b < r.batch_count(); ++b)
    sizes.push_back(static_cast<std::int32_t>(r.batch(b).size()));
  return sizes;
}

TEST_CASE("a rearrangement moves each item from where it was", "[balancer]") {
  // Rank 0 held a, b; rank 1 held c. New batch 0: c; new batch 1: b, a.
  const auto moved = Rearrangement::create({{{1, 0}}, {{0, 1}, {0, 0}}}).value();
  const std::vector<std::vector<char>> values{{'a', 'b'}, {'c'}};
  CHECK(moved.apply(values) == std::vector<std::vector<char>>{{'c'}, {'b', 'a'}});
  // Back: rank 0 takes a from batch 1 place 1, b from batch 1 place 0; rank 1 takes c.
  CHECK(moved.inverse() == Rearrangement::create({{{1, 1}, {1, 0}}, {{0, 0}}}).value());
}

TEST_CASE("permuting batches moves them whole", "[balancer]") {
  const auto moved = Rearrangement::create({{{1, 0}}, {{0, 1}, {0, 0}}}).value();
  CHECK(moved.permuted(std::vector<std::int32_t>{1, 0}) ==
        Rearrangement::create({{{0, 1}, {0, 0}}, {{1, 0}}}).value());
}

TEST_CASE("what is no bijection is refused with the item's place", "[balancer][errors]") {
  const auto message = [](const Sources& sources) {
    const auto result = Rearrangement::create(sources);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Errc::invalid_argument);
    return result.error().message;
  };
  CHECK_THAT(message({{{0, 0}}, {{0, 0}}}), ContainsSubstring("[0,0] occurs twice"));
  CHECK_THAT(message({{{0, 1}}}), ContainsSubstring("[0,1]"));
  CHECK_THAT(message({{{0, 0}, {1, 1}}}), ContainsSubstring("leaves a gap"));
  CHECK_THAT(message({{{-1, 0}}}), ContainsSubstring("counts below 0"));
  CHECK_THAT(message({{{2000000000, 0}}}), ContainsSubstring("beyond the last"));
  CHECK_FALSE(Rearrangement::create({{{1, 0}}}, 1).ok());
}

TEST_CASE("rearrangements that do not fit are not composed", "[balancer][errors]") {
  const auto one = Rearrangement::create({{{0, 0}}}).value();
  const auto two = Rearrangement::create({{{0, 0}}, {{1, 0}}}).value();
  const auto result = compose(one, two);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().where == "batch 1");
}

TEST_CASE("composition applies one after the other and inverses undo it", "[balancer][property]") {
  Random random(GENERATE(range(0u, 300u)));
  std::vector<std::int32_t> sizes(1 + random.below(6));
  for (auto& size : sizes) size = static_cast<std::int32_t>(random.below(6));
  const auto first = random_rearrangement(random, sizes);
  const auto second = random_rearrangement(random, batch_sizes(first));
  const auto third = random_rearrangement(random, batch_sizes(second));
  const auto values = labels(sizes);
  const auto both = compose(first, second).value();

  CHECK(both.apply(values) == second.apply(first.apply(values)));
  CHECK(compose(both, third).value() == compose(first, compose(second, third).value()).value());
  CHECK(first.inverse().apply(first.apply(values)) == values);
  CHECK(first.inverse().inverse() == first);
  CHECK(compose(first, first.inverse()).value() == Rearrangement::identity(sizes));
  CHECK(compose(first.inverse(), first).value() == Rearrangement::identity(batch_sizes(first)));
  CHECK(both.inverse() == compose(second.inverse(), first.inverse()).value());
}

}  // namespace
}  // namespace troupe::balancer
