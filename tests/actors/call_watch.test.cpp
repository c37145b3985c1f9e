#include "actors/node/call_watch.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};
const std::optional<plugins::UserCall> kFirst = plugins::UserCall{1, "`plan` of policy 'mine'"};
const std::optional<plugins::UserCall> kSecond = plugins::UserCall{2, "`plan` of policy 'mine'"};

/// Looks every 200 ms from `from` until before `to`; true where all was well.
bool fine(CallWatch& watch, Duration from, Duration to,
          const std::optional<plugins::UserCall>& call) {
  for (Duration at = from; at < to; at += 200ms)
    if (!watch.pass(kStart + at, 3, call).ok()) return false;
  return true;
}

TEST_CASE("a function that does not return is named, with its time", "[actors][errors]") {
  CallWatch watch;
  CHECK(fine(watch, 0s, 1s, std::nullopt));
  CHECK(fine(watch, 1s, 4s, kFirst));
  CHECK(watch.pass(kStart + 4s, 3, kFirst).ok());  // Three seconds, not more.
  const auto over = watch.pass(kStart + 4200ms, 3, kFirst);
  REQUIRE_FALSE(over.ok());
  // A job that began again would come to it again.
  CHECK(over.error().code == Errc::internal);
  CHECK(over.error().message == "`plan` of policy 'mine' has not returned for 3 s");
  CHECK(over.error().where == "train.stall_timeout_s");
  CHECK(over.error().fix.find("loop without an end") != std::string::npos);
  CHECK(over.error().fix.find("raise train.stall_timeout_s where") != std::string::npos);
  CallWatch other("--timeout");  // Of a command that has a limit of its own.
  CHECK(fine(other, 0s, 3s, kFirst));
  CHECK(other.pass(kStart + 3s, 3, kFirst).ok());
  const auto by_limit = other.pass(kStart + 3200ms, 3, kFirst);
  REQUIRE_FALSE(by_limit.ok());
  CHECK(by_limit.error().where == "--timeout");
  CHECK(by_limit.error().fix.find("raise --timeout where") != std::string::npos);
}

TEST_CASE("calls that return leave the next ones their time", "[actors]") {
  CallWatch watch;
  CHECK(fine(watch, 0s, 2800ms, kFirst));
  CHECK(fine(watch, 2800ms, 5600ms, kSecond));
  CHECK(fine(watch, 5600ms, 60s, std::nullopt));
  CHECK(fine(watch, 60s, 62800ms, kFirst));
}

}  // namespace
}  // namespace troupe::actors
