#include "runtime/observers/listeners.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "runtime/observers/audience.hpp"

namespace troupe::observers {
namespace {

Watch rows_of(const std::string& module, std::int64_t queue = 64) {
  Watch watch;
  watch.module = module;
  watch.queue = queue;
  return watch;
}

/// A row of one sample. `bytes`: of its values, which nobody reads.
std::shared_ptr<const Observed> part(std::int64_t step, std::size_t bytes = 4,
                                     Kind kind = Kind::rows) {
  auto part = std::make_shared<Observed>();
  part->step = step;
  part->module = "vision";
  part->kind = kind;
  part->ids = {"a"};
  part->rows = {1};
  part->first_rows = {0};
  part->width = static_cast<std::int64_t>(bytes / 4);
  part->values = {nullptr, nullptr, bytes / 4, Dtype::fp32};
  return part;
}

ObservedStep word(std::int64_t step) {
  ObservedStep word;
  word.step = step;
  return word;
}

/// All that waits: the step of a part, the negative step of a word.
std::vector<std::int64_t> taken(Listeners& listeners, Listeners::Id id) {
  std::vector<std::int64_t> all;
  while (const auto item = listeners.take(id))
    all.push_back(item->part ? item->part->step : -item->step->step);
  return all;
}

TEST_CASE("who begins to listen sees the next step from its beginning") {
  Listeners listeners;
  CHECK_FALSE(listeners.begins(4));
  CHECK(listeners.add(7, rows_of("vision")) == 5);
  CHECK_FALSE(listeners.begins(4));  // Another device, which is behind.
  CHECK_FALSE(listeners.wants(4, "vision", Kind::rows));
  listeners.show(part(4));
  listeners.show(word(4));
  CHECK(listeners.begins(5));
  CHECK(listeners.wants(5, "vision", Kind::rows));
  CHECK_FALSE(listeners.wants(5, "llm", Kind::rows));
  CHECK_FALSE(listeners.wants(5, "vision", Kind::gradients));
  listeners.show(part(5));
  listeners.show(part(5, 4, Kind::gradients));
  listeners.show(word(5));
  CHECK(taken(listeners, 7) == std::vector<std::int64_t>{5, -5});
  CHECK(listeners.count(7).shown == 1);
  listeners.remove(7);
  CHECK_FALSE(listeners.begins(6));
  CHECK_FALSE(listeners.wants(6, "vision", Kind::rows));
  CHECK_FALSE(listeners.take(7).has_value());
}

TEST_CASE("a listener's queue holds so many parts and bytes, and counts what it drops") {
  Listeners listeners;
  listeners.add(1, rows_of("", 3));
  listeners.add(2, rows_of("", 1000));
  for (std::int64_t step = 1; step <= 5; ++step) listeners.show(part(step));
  CHECK(taken(listeners, 1) == std::vector<std::int64_t>{1, 2, 3});
  CHECK(listeners.count(1).dropped == 2);
  CHECK(listeners.count(2).dropped == 0);
  CHECK(listeners.take_tally().dropped == 2);
  CHECK(listeners.take_tally().dropped == 0);  // Told once.
  taken(listeners, 2);
  // By hand: one that is larger than the bound may wait alone; then half of it twice, and no more.
  for (const std::size_t bytes : {kWaitingBytesMax + 4, kWaitingBytesMax / 2})
    listeners.show(part(6, bytes));
  CHECK(taken(listeners, 2) == std::vector<std::int64_t>{6});
  for (std::int64_t step = 7; step <= 9; ++step) listeners.show(part(step, kWaitingBytesMax / 2));
  CHECK(taken(listeners, 2) == std::vector<std::int64_t>{7, 8});
  CHECK(listeners.count(2).dropped == 2);
}

TEST_CASE("of words on steps the newest always find room") {
  Listeners listeners;
  listeners.add(1, rows_of("", 2));
  for (std::int64_t step = 1; step <= 9; ++step) listeners.show(word(step));
  CHECK(taken(listeners, 1) == std::vector<std::int64_t>{-8, -9});
}

TEST_CASE("a node that rests says so once, behind what waits") {
  Listeners listeners;
  listeners.rest();  // Nobody listens.
  listeners.add(1, rows_of("vision"));
  listeners.begins(1);
  listeners.show(part(1));
  listeners.rest();
  listeners.rest();
  CHECK(listeners.next_step() == 2);
  CHECK(listeners.take(1)->part != nullptr);
  const auto rest = listeners.take(1);
  REQUIRE(rest);
  CHECK_FALSE(rest->part);
  CHECK_FALSE(rest->step);
  CHECK_FALSE(listeners.take(1));
}

TEST_CASE("who brings it to listeners is told that something waits, and of nothing else") {
  Listeners listeners;
  int told = 0;
  listeners.on_waiting([&] { ++told; });
  listeners.show(part(1));
  CHECK(told == 0);
  listeners.add(1, rows_of("vision"));
  listeners.show(part(1));
  listeners.show(word(1));
  CHECK(told == 2);
  listeners.on_waiting({});
  listeners.show(part(2));
  CHECK(told == 2);
}

TEST_CASE("an audience of nobody looks at nothing") {
  Audience audience;
  CHECK_FALSE(audience.begins(1));
  CHECK_FALSE(audience.wants(1, "vision", Kind::rows));
  audience.show(part(1));
  CHECK(audience.take_tally().shown == 0);
  CHECK(audience.is_empty());
  audience.listeners().add(1, rows_of("vision"));
  CHECK_FALSE(audience.is_empty());
  CHECK_FALSE(audience.begins(1));
  CHECK(audience.begins(2));
  CHECK(audience.wants(2, "vision", Kind::rows));
  audience.show(part(2));
  audience.show(word(2));
  CHECK(taken(audience.listeners(), 1) == std::vector<std::int64_t>{2, -2});
  CHECK(audience.take_tally().shown == 1);
  audience.end();
}

}  // namespace
}  // namespace troupe::observers
