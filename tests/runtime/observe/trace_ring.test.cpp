#include "runtime/observe/trace_ring.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

namespace troupe::observe {
namespace {

TraceEvent numbered(std::int64_t step) {
  TraceEvent event;
  event.step = step;
  return event;
}

TEST_CASE("a full ring drops its oldest events and counts them", "[observe]") {
  TraceRing ring(3);
  for (int i = 1; i <= 5; ++i) ring.record(numbered(i));
  CHECK(ring.size() == 3);
  CHECK(ring.dropped() == 2);
  CHECK(ring.drain() == std::vector<TraceEvent>{numbered(3), numbered(4), numbered(5)});
  CHECK(ring.size() == 0);
  CHECK(ring.dropped() == 0);
  CHECK(ring.drain().empty());
}

TEST_CASE("a ring keeps the newest events in order, whatever came before", "[observe][property]") {
  const auto capacity = GENERATE(0u, 1u, 2u, 7u);
  TraceRing ring(capacity);
  std::int64_t next = 0;
  for (const int batch : {1, 3, 7, 8, 20, 0, 2}) {
    for (int i = 0; i < batch; ++i) ring.record(numbered(next++));
    const auto drained = ring.drain();
    const auto kept = std::min<std::size_t>(static_cast<std::size_t>(batch), ring.capacity());
    REQUIRE(drained.size() == kept);
    for (std::size_t i = 0; i < kept; ++i)
      CHECK(drained[i].step == next - static_cast<std::int64_t>(kept - i));
  }
}

}  // namespace
}  // namespace troupe::observe
