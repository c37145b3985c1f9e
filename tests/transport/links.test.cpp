#include "transport/links.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::transport {
namespace {

using Standing = Links::Standing;

TEST_CASE("a link is early, then open, then stale", "[transport]") {
  Links links;
  CHECK(links.standing({77, 1}) == Standing::early);
  REQUIRE(links.open(3, 77).ok());
  CHECK(links.standing({77, 1}) == Standing::open);
  CHECK(links.find(3) == Link{77, 1});
  CHECK(links.peer_of(77) == 3);
  CHECK(links.close(3) == Link{77, 1});
  CHECK(links.standing({77, 1}) == Standing::stale);
  CHECK(links.standing({77, 2}) == Standing::early);
  CHECK_FALSE(links.close(3));
  CHECK_FALSE(links.find(3));
  CHECK_FALSE(links.peer_of(77));
}

TEST_CASE("connections to a process are counted, also across peers' ids", "[transport]") {
  Links links;
  links.open(3, 77).value();
  links.close(3);
  CHECK(links.open(3, 77).value() == Link{77, 2});
  CHECK(links.standing({77, 3}) == Standing::newer);  // The peer has left connection 2.
  CHECK(links.standing({77, 1}) == Standing::stale);  // What was under way when it ended.
  links.close(3);
  CHECK(links.open(3, 88).value() == Link{88, 1});  // Restarted: another process.
  CHECK(links.standing({77, 2}) == Standing::stale);
}

TEST_CASE("a connection that the other side ended first is skipped", "[transport]") {
  Links links;
  links.skip({77, 1});
  CHECK(links.standing({77, 1}) == Standing::stale);
  CHECK(links.open(3, 77).value() == Link{77, 2});
  links.skip({77, 1});  // Old news.
  CHECK(links.standing({77, 2}) == Standing::open);
}

TEST_CASE("one id is one process", "[transport][errors]") {
  Links links;
  links.open(3, 77).value();
  CHECK(links.open(3, 88).error().code == Errc::invalid_argument);
  CHECK(links.open(4, 77).error().code == Errc::invalid_argument);
  CHECK(links.peers() == std::vector<Peer>{3});
}

}  // namespace
}  // namespace troupe::transport
