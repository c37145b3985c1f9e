#include "runtime/plugins/user_calls.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>

namespace troupe::plugins {
namespace {

TEST_CASE("the call that began first is told until it returns", "[plugins]") {
  CHECK_FALSE(oldest_user_call());
  auto first = std::make_unique<CallingUser>("`plan` of policy 'a'");
  const CallingUser second("`plan` of policy 'b'");
  const auto oldest = oldest_user_call();
  REQUIRE(oldest);
  CHECK(oldest->function == "`plan` of policy 'a'");
  CHECK(oldest_user_call() == oldest);
  first.reset();
  REQUIRE(oldest_user_call());
  CHECK(oldest_user_call()->function == "`plan` of policy 'b'");
  CHECK(oldest_user_call()->number > oldest->number);
}

TEST_CASE("a call that has returned is told no more, and the next one is another", "[plugins]") {
  std::int64_t number = 0;
  {
    const CallingUser call("`read` of format 'a'");
    REQUIRE(oldest_user_call());
    number = oldest_user_call()->number;
  }
  CHECK_FALSE(oldest_user_call());
  const CallingUser again("`read` of format 'a'");
  REQUIRE(oldest_user_call());
  CHECK(oldest_user_call()->number > number);
}

}  // namespace
}  // namespace troupe::plugins
