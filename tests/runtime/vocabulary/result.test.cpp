#include "runtime/vocabulary/result.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

TEST_CASE("an error prints where, what and the fix on lines of their own", "[vocabulary]") {
  const Error error{Errc::bad_data, "image has 0 pixels", "sample s7", "remove the file"};
  CHECK(to_string(error) == "sample s7: image has 0 pixels\n  fix: remove the file");
  CHECK(to_string(Error{Errc::timed_out, "", "", ""}) == "timed out");
}

TEST_CASE("exit codes follow the interface page", "[vocabulary]") {
  CHECK(exit_code({Errc::invalid_argument, "", "", ""}) == 2);
  CHECK(exit_code({Errc::bad_data, "", "", ""}) == 3);
  CHECK(exit_code({Errc::transport_failed, "", "", ""}) == 1);
}

TEST_CASE("a result holds a value or an error", "[vocabulary]") {
  const Result<int> value = 3;
  const Result<int> error = Error{Errc::not_found, "no", "", ""};
  REQUIRE(value.ok());
  CHECK(value.value() == 3);
  REQUIRE_FALSE(error.ok());
  CHECK(error.error().code == Errc::not_found);
}

}  // namespace
}  // namespace troupe
