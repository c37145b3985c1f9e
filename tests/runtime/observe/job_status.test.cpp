#include "runtime/observe/job_status.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

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

TEST_CASE("a job says what it promises, what is left of that, and where nodes join", "[observe]") {
  JobStatus status;
  status.job = "small";
  status.phase = "training";
  status.layout = "2 pipelines";
  status.generation = 3;
  status.tolerance_left = 1;
  status.fault_tolerance = 2;
  status.join = "head:7000";
  const auto text_of = [&] {
    const auto read = read_status(status_line(status));
    REQUIRE(read.ok());
    CHECK(read.value().fault_tolerance == 2);
    CHECK(read.value().min_nodes == status.min_nodes);
    CHECK(read.value().spares == status.spares);
    CHECK(read.value().join == "head:7000");
    return status_text(read.value());
  };
  const std::string begin =
      "small: training, step 0 done\nlayout 3: 2 pipelines; 1 node may be lost ";
  CHECK(text_of() == begin + "(promised: 2)\nno checkpoint yet\n");
  status.spares = 1;
  CHECK(text_of() == begin + "(promised: 2)\n1 spare node\nno checkpoint yet\n");
  status.min_nodes = 3;
  CHECK(text_of() == begin + "(promised: 2)\nat least 3 nodes, 1 spare node\nno checkpoint yet\n");
}

TEST_CASE("a job says of each node what it works, holds and how long it is silent", "[observe]") {
  JobStatus status;
  status.job = "small";
  status.phase = "training";
  status.layers = 6;
  status.nodes.push_back({NodeId{0}, "host", 12, "working", 1, 2, 0});
  status.nodes.push_back({NodeId{1}, "host", 13, "spare", 1, 6, 2.6});
  status.nodes.push_back({NodeId{2}, "host", 14, "waiting for work", 0, 0, 0});
  const auto read = read_status(status_line(status));
  REQUIRE(read.ok());
  CHECK(read.value().layers == 6);
  CHECK(read.value().nodes[1].standby_layers == 6);
  CHECK(read.value().nodes[1].silent_s == 2.6);
  CHECK(status_text(read.value()) ==
        "small: training, step 0 done\n"
        "no checkpoint yet\n"
        "node 0  working, stands by for 2 of 6 layers  host, pid 12  1 device\n"
        "node 1  spare: holds 6 of 6 layers, silent for 3 s  host, pid 13  1 device\n"
        "node 2  waiting for work  host, pid 14\n");
}

}  // namespace
}  // namespace troupe::observe
