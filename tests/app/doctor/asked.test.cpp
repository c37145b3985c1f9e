#include "app/doctor/asked.hpp"

#include <catch2/catch_test_macros.hpp>

#include <stdexcept>

using namespace troupe::app;
using namespace std::chrono_literals;

TEST_CASE("a question that is answered gives its answer", "[app]") {
  Asked<int> asked([] { return 7; });
  CHECK(asked.answer(std::chrono::steady_clock::now() + 30s) == 7);
}

TEST_CASE("what a question throws comes out where its answer would", "[app][errors]") {
  Asked<int> asked([]() -> int { throw std::runtime_error("no idea"); });
  CHECK_THROWS_AS(asked.answer(std::chrono::steady_clock::now() + 30s), std::runtime_error);
}

TEST_CASE("nobody waits for a question that is never answered", "[app][errors]") {
  std::promise<void> never;
  const auto begin = std::chrono::steady_clock::now();
  {
    Asked<int> asked([gate = never.get_future().share()] {
      gate.wait_for(30s);  // Longer than anybody should wait, and not for ever.
      return 7;
    });
    CHECK_FALSE(asked.answer(begin + 50ms));
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took >= 50ms);
  CHECK(took < 20s);
  never.set_value();
}
