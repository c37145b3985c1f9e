#include "transport/ucx/inbound.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstring>
#include <numeric>
#include <random>

namespace troupe::transport {
namespace {

Incoming numbered(std::uint64_t number) {
  return {make_tag(1, TagKind::user, 0, number), 0, Incoming::Offered{}};
}

TEST_CASE("messages count in the order of sending, however they arrive", "[transport][property]") {
  std::mt19937 random(GENERATE(Catch::Generators::range(0u, 20u)));
  std::vector<std::uint64_t> arrival(30);
  std::iota(arrival.begin(), arrival.end(), 0);
  std::ranges::shuffle(arrival, random);
  Inbound inbound;
  std::vector<std::uint64_t> delivered;
  for (const auto number : arrival) {
    if (!inbound.is_next(number)) {
      inbound.park(number, numbered(number));
      continue;
    }
    delivered.push_back(number);
    while (const auto next = inbound.next()) delivered.push_back(next->tag.index);
  }
  CHECK(delivered.size() == 30);
  CHECK(std::ranges::is_sorted(delivered));
  CHECK(inbound.take_all().empty());
}

TEST_CASE("bytes that UCX only shows are kept by a copy", "[transport]") {
  char shown[] = "abc";
  Incoming message{{}, 3, Incoming::Seen{shown}};
  message.keep_bytes();
  std::memset(shown, 0, sizeof shown);
  CHECK(std::memcmp(message.data(), "abc", 3) == 0);
  CHECK(message.copied_bytes() > 3);
  Incoming empty{{}, 0, Incoming::Seen{nullptr}};
  empty.keep_bytes();
  CHECK(empty.bytes == 0);
}

}  // namespace
}  // namespace troupe::transport
