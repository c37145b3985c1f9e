#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_watch.hpp"

#include <csignal>
#include <fstream>

#include "runtime/files/read_stream.hpp"
#include "tests/actors/head_fixture.hpp"
#include "tests/runtime/data/temp_folder.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

TEST_CASE("nodes that do not set the model up in time are named", "[actors][errors]") {
  Head head;
  head.join_all();
  head.tell(applied_atom::value, NodeId{0}, EpochNumber{1});
  head.tell(applied_atom::value, NodeId{2}, EpochNumber{1});
  head.system.pass(1900ms);
  CHECK_FALSE(head.ended);
  head.system.pass(400ms);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message,
             "the model was not set up within 2 s; still at it: node 1 (host, "
             "pid 101), node 3 (host, pid 103)"));
  CHECK(says(head.ended->message, "cluster.join_timeout_s"));
}

TEST_CASE("a node that falls silent is lost, and nobody waits for it", "[actors][errors]") {
  Head head(2, one_pipeline);
  head.resources.setup.job.cluster.heartbeat_timeout_s = 3;
  head.start_training();
  head.pass(10s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].alive >= 10);  // They hear of the supervisor too.
  head.pass(2800ms, {0, 1, 3});
  CHECK_FALSE(head.ended);
  head.pass(600ms, {0, 1, 3});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message,
             "node 2 (host, pid 102) was lost: nothing was heard from it for 3 s"));
  CHECK(says(head.ended->message, "stopped, crowded or cut off"));
  CHECK((head.ended->left == std::vector{NodeId{2}}));
  for (const std::size_t id : {0u, 1u, 3u}) CHECK(head.seen[id].stops.size() == 1);
  CHECK(head.seen[2].stops.empty());
}

TEST_CASE("who has come in time has a time of its own to open its data", "[actors][errors]") {
  const data::TempFolder folder;
  Head head(2, [](job::Job& job) { job.cluster.open_timeout_s = 10; });
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, folder.path() / "log"})
          .value();
  for (int i = 0; i < 4; ++i) head.join("host");
  for (const std::size_t id : {0u, 1u, 3u}) head.ready(id);
  head.system.pass(1900ms);
  CHECK_FALSE(says(files::read_whole(folder.path() / "log").value(), "still open"));
  head.system.pass(6s);
  CHECK_FALSE(head.ended);
  CHECK(says(files::read_whole(folder.path() / "log").value(),
             "the job waits for those that still open data and devices: node 2 (host, pid 102); "
             "each has 10 s (cluster.open_timeout_s)"));
  SECTION("it begins with the last one") {
    head.ready(2);
    CHECK(head.seen[2].configurations.size() == 1);
  }
  SECTION("it ends after that") {
    head.system.pass(3s);
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 1);
    CHECK(says(head.ended->message, "still opening data and devices: node 2 (host, pid 102)"));
  }
  SECTION("a place that is free again is late") {
    caf::anon_send_exit(head.nodes[3], caf::exit_reason::kill);
    head.system.pass(800ms);
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "lost: node 3 (host, pid 103)"));
  }
}

TEST_CASE("a node that falls silent while it opens its data is lost", "[actors][errors]") {
  Head head(2, [](job::Job& job) { job.cluster.local_nodes = 2; });
  head.resources.setup.job.cluster.heartbeat_timeout_s = 1;
  head.join("host", 0);
  head.join("host", 1);
  head.pass(800ms, {});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].alive >= 1);  // It hears of the supervisor too.
  head.pass(600ms, {0});
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "node 1 (host, pid 101) was lost: nothing was heard from it"));
}

TEST_CASE("a job that ends does not wait for a node that falls silent", "[actors]") {
  Head head;
  head.resources.setup.job.cluster.heartbeat_timeout_s = 1;
  head.start_training();
  head.seen[1].deaf = true;
  head.tell(stop_atom::value, std::int32_t{SIGINT});
  head.pass(600ms, {});
  CHECK_FALSE(head.ended);
  head.pass(800ms, {});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 130);
  CHECK(head.seen[0].exit_codes == std::vector<std::int32_t>{1});  // The signal was the head's.
  CHECK((head.ended->left == std::vector{NodeId{1}}));
}

TEST_CASE("a step that takes very long is told with those it waits for", "[actors]") {
  const data::TempFolder folder;
  const auto file = folder.path() / "log";
  Head head;
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, file}).value();
  const auto log = [&] {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  head.start_training();
  head.plan(0);
  for (const std::size_t device : {0u, 2u}) head.prepared(device, 1, 1, 1);
  head.system.pass(29s);
  CHECK_FALSE(says(log(), "has not ended"));
  head.system.pass(2s);
  CHECK(says(log(),
             "step 1 has not ended for 30 s; it waits for the gradients of device 1 (node 1), "
             "device 3 (node 3)"));
  for (const std::size_t device : {1u, 3u}) head.prepared(device, 1, 1, 1);
  for (const std::size_t device : {0u, 1u, 2u}) head.finished(device, 1);
  head.system.pass(31s);
  CHECK(says(log(), "it waits for the end of device 3 (node 3)"));
  CHECK_FALSE(head.ended);  // It may still come.
  head.resources.setup.job.train.stall_timeout_s = 70;
  head.system.pass(6s);
  CHECK_FALSE(head.ended);
  head.system.pass(4s);
  CHECK_FALSE(head.ended);  // What is decided is finished, and saved, if it is in time.
  head.system.pass(11s);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(
      says(head.ended->message, "train.stall_timeout_s: step 1 has not ended for 70 s; it waits"));
  CHECK(says(head.ended->message, "device 3 (node 3)"));
}

TEST_CASE("a step that takes very long is told as soon where it is trained again", "[actors]") {
  const data::TempFolder folder;
  const auto file = folder.path() / "log";
  Head head;
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, file}).value();
  const auto log = [&] {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  head.start_training();
  head.plan(0);
  head.system.pass(31s);
  CHECK(says(log(), "step 1 has not ended for 30 s"));
  const std::size_t before = log().size();
  head.lose(3);
  for (const std::size_t id : {0u, 1u, 2u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : {0u, 1u, 2u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  head.plan(0);
  head.system.pass(29s);
  CHECK(log().find("has not ended", before) == std::string::npos);
  head.system.pass(2s);
  CHECK(log().find("step 1 has not ended for 30 s", before) != std::string::npos);
}

}  // namespace
}  // namespace troupe::actors
