#include "runtime/observe/job_status.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::observe {
namespace {

TEST_CASE("what a job says of itself is read back, and does not act on a terminal", "[observe]") {
  JobStatus status;
  status.job = status.phase = status.layout = "a\x1b[2J\u202e";
  status.total_steps = 9;
  status.step = 2;
  status.nodes.push_back({NodeId{1}, "host\x1b[2J", 12, "working\u202e", 1});
  const auto read = read_status(status_line(status));
  REQUIRE(read.ok());
  CHECK(read.value().nodes[0].host == status.nodes[0].host);
  CHECK(status_text(read.value()) ==
        "a\\x1b[2J\\u202e: a\\x1b[2J\\u202e, step 2 of 9 done\n"
        "layout 0: a\\x1b[2J\\u202e; no node may be lost\n"
        "no checkpoint yet\n"
        "node 1  working\\u202e  host\\x1b[2J, pid 12  1 device\n");
}

}  // namespace
}  // namespace troupe::observe
