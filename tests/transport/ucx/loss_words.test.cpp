#include "transport/ucx/loss_words.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::transport {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("the end of a connection is told in words of our own", "[transport][errors]") {
  // Numbers of UCX: -80 is its "Endpoint timeout", -25 its "Connection reset by remote peer".
  CHECK(loss_words(-80) == "the connection to it broke");
  CHECK(loss_words(-25) == "the connection to it broke");
  CHECK(loss_words(-6) == "no network transport of this machine reaches it");
  CHECK(loss_words(-4) == "there was no memory left for its messages");
  CHECK(loss_words(-23) == "it does not take the connection");
}

TEST_CASE("no code of UCX is told in UCX's words", "[transport][errors]") {
  for (int status = -1; status >= -100; --status) {
    const auto words = loss_words(status);
    CAPTURE(status, words);
    CHECK_FALSE(words.empty());
    CHECK_THAT(words, !ContainsSubstring("ndpoint") && !ContainsSubstring("timeout"));
  }
  CHECK_THAT(loss_words(-5), ContainsSubstring("transport status -5"));
}

}  // namespace
}  // namespace troupe::transport
