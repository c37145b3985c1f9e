#include "app/doctor/finding.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace troupe;
using namespace troupe::app;

TEST_CASE("the verdict counts what matters", "[app]") {
  const Finding good = fine("a", "x"), bad = problem("b", "x", "y"), risky = warning("c", "x", "y");
  CHECK(verdict({good}, "Troupe") == "Troupe can run on this machine: all is fine");
  CHECK(verdict({good, risky}, "Troupe") == "Troupe can run on this machine: 1 warning");
  CHECK(verdict({bad, risky, risky}, "a.toml") ==
        "a.toml cannot run on this machine: 1 problem, 2 warnings");
  CHECK(verdict({bad, bad}, "a.toml") == "a.toml cannot run on this machine: 2 problems");
}

TEST_CASE("an error is a problem in its own words", "[app][errors]") {
  CHECK(problem("port", Error{Errc::io_failed, "it is taken", "cluster.listen", "end it"}) ==
        Finding{"port", Level::problem, "cluster.listen: it is taken", "end it"});
  CHECK(problem("port", Error{Errc::io_failed, "it is taken", "", "end it"}).found ==
        "it is taken");
}

TEST_CASE("sizes are written in the unit that fits", "[app]") {
  CHECK(size_words(Bytes{1536}) == "2 KiB");
  CHECK(size_words(Bytes{64 << 20}) == "64 MiB");
  CHECK(size_words(Bytes{std::int64_t{3} << 29}) == "1.5 GiB");
}
