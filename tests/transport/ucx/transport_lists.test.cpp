#include "transport/ucx/transport_lists.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::transport {
namespace {

using Catch::Matchers::ContainsSubstring;

void check(const char* tls, const char* network, const char* shared) {
  CAPTURE(tls);
  const auto lists = divide_transports(tls);
  REQUIRE(lists.ok());
  CHECK(lists.value().network == network);
  CHECK(lists.value().shared == shared);
}

TEST_CASE("a list of transports is divided into network and shared memory", "[transport]") {
  check("all", "^sm", "posix");
  check("self,tcp", "self,tcp", "");
  check("posix,sysv,self,tcp", "self,tcp", "posix");
  check("self,sysv,tcp", "self,tcp", "sysv");
  check("tcp,sm", "tcp", "posix");
  check("tcp,cma", "tcp", "");
  check("self", "self", "");
}

TEST_CASE("a list of exceptions is divided too", "[transport]") {
  check("^rc", "^rc,sm", "posix");
  check("^posix", "^posix,sm", "sysv");
  check("^posix,sysv", "^posix,sysv,sm", "");
  check("^shm", "^shm,sm", "");
}

TEST_CASE("shared memory alone is refused", "[transport][errors]") {
  const auto lists = divide_transports("posix,self");
  REQUIRE_FALSE(lists.ok());
  CHECK(lists.error().code == Errc::invalid_argument);
  CHECK_THAT(lists.error().message, ContainsSubstring("'posix,self'"));
  CHECK_THAT(lists.error().fix, ContainsSubstring("tcp"));
}

}  // namespace
}  // namespace troupe::transport
