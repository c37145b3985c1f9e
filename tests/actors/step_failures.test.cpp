#include "actors/coordination/step_failures.hpp"

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <set>
#include <string>
#include <utility>

namespace troupe::actors {
namespace {

using Samples = std::set<std::string>;

constexpr std::int64_t kStep = 5;

/// Of a node with one layer of the first module.
StepFailure failure(FailureKind kind, int node, EpochNumber generation, Samples samples,
                    std::int64_t step = kStep, std::int32_t layer = 0) {
  StepFailure made{kind, step, generation, NodeId{node}};
  made.layers = {{ModuleId{0}, layer}};
  made.who = "node " + std::to_string(node);
  made.said = "how " + std::to_string(node) + " ended";
  made.samples = std::move(samples);
  return made;
}

StepFailure thrown(int node, EpochNumber generation, Samples samples, std::int64_t step = kStep) {
  StepFailure made = failure(FailureKind::thrown, node, generation, std::move(samples), step);
  made.thrown = "too tired";
  return made;
}

StepFailure gone(int node, EpochNumber generation, Samples samples, std::int64_t step = kStep) {
  return failure(FailureKind::unexplained, node, generation, std::move(samples), step);
}

bool says(const Error& error, const std::string& part) {
  return error.message.find(part) != std::string::npos;
}

TEST_CASE("a step in which a stage throws is tried once more", "[actors]") {
  StepFailures failures;
  CHECK_FALSE(failures.add(thrown(1, 1, {"a", "b"})));
  // Whoever threw beside it did not try again.
  CHECK_FALSE(failures.add(thrown(2, 1, {"c"})));
  const auto again = failures.add(thrown(2, 2, {"c"}));
  REQUIRE(again);
  CHECK(again->code == Errc::internal);
  CHECK(says(*again, "step 5 fails again"));
  CHECK(says(*again, "node 2: how 2 ended; before that node 1: how 1 ended"));
  CHECK_FALSE(again->fix.empty());
}

TEST_CASE("another step is another matter, unless it throws the same for the same sample",
          "[actors]") {
  StepFailures failures;
  CHECK_FALSE(failures.add(thrown(1, 1, {"a", "b"})));
  CHECK_FALSE(failures.add(thrown(1, 2, {"c"}, 8)));
  StepFailure other = thrown(1, 3, {"c", "d"}, 20);
  other.thrown = "no such row";
  CHECK_FALSE(failures.add(other));
  const auto again = failures.add(thrown(3, 4, {"d"}, 30));
  CHECK_FALSE(again);  // It is the last one that counts, and that said something else.
  const auto same = failures.add(thrown(2, 5, {"d", "e"}, 40));
  REQUIRE(same);
  CHECK(says(*same, "the same goes wrong again for samples 'd': node 2"));
}

// Window: what runs in a step ends its process
TEST_CASE("processes that end by what they run end the job the second time", "[actors]") {
  StepFailures failures;
  CHECK_FALSE(failures.add(failure(FailureKind::crashed, 1, 1, {"a", "b"})));
  SECTION("in the same step, with the same samples") {
    const auto again = failures.add(failure(FailureKind::crashed, 2, 2, {"b", "c"}));
    REQUIRE(again);
    CHECK(again->code == Errc::internal);
    CHECK(says(*again, "node 1 and node 2 both ended in step 5 for samples 'b': how 1 ended"));
  }
  SECTION("with others it may be chance") {
    CHECK_FALSE(failures.add(failure(FailureKind::crashed, 2, 2, {"c"})));
  }
  SECTION("at the same time it may be too") {
    CHECK_FALSE(failures.add(failure(FailureKind::crashed, 2, 1, {"b"})));
  }
  SECTION("in a later step it is") {
    CHECK_FALSE(failures.add(failure(FailureKind::crashed, 2, 2, {"b"}, 6)));
  }
  SECTION("how they ended may be heard later, also the other way round") {
    CHECK_FALSE(failures.add(gone(2, 2, {"b"})));
    CHECK_FALSE(failures.explain(NodeId{2}, "was killed by signal 9", SIGKILL));
    CHECK_FALSE(failures.explain(NodeId{3}, "was killed by signal 11", SIGSEGV));
    const auto again = failures.explain(NodeId{2}, "was killed by signal 11", SIGSEGV);
    REQUIRE(again);
    CHECK(says(*again, "how 1 ended, then was killed by signal 11"));
  }
  SECTION("after one that threw it is no chance either") {
    CHECK(failures.add(thrown(2, 2, {"b"})));
  }
}

TEST_CASE("machines that are lost by chance do not end a job", "[actors]") {
  StepFailures failures;
  // By hand: three at once, and another one while the step is trained again.
  CHECK_FALSE(failures.add(gone(0, 1, {"a"})));
  CHECK_FALSE(failures.add(gone(1, 1, {"a", "b"})));
  CHECK_FALSE(failures.add(gone(2, 1, {"a", "b"})));
  CHECK_FALSE(failures.add(gone(3, 2, {"a", "b"})));
  SECTION("a third time in a row it is none") {
    const auto again = failures.add(gone(4, 3, {"a", "c"}));
    REQUIRE(again);
    CHECK(again->code == Errc::transport_failed);  // The job goes on from its checkpoint.
    CHECK(says(*again, "step 5 for samples 'a': node "));
    CHECK(says(*again, "node 3: how 3 ended; node 4: how 4 ended"));
  }
  SECTION("unless they had other samples") { CHECK_FALSE(failures.add(gone(4, 3, {"c"}))); }
  SECTION("or fall into two steps") {
    CHECK_FALSE(failures.add(gone(4, 3, {"a"}, 6)));
    CHECK_FALSE(failures.add(gone(5, 4, {"a"}, 6)));
  }
  SECTION("the same loss is told twice") { CHECK_FALSE(failures.add(gone(3, 2, {"a", "b"}))); }
}

TEST_CASE("a wave of losses ends no job, unless the same work takes one node after the other",
          "[actors]") {
  const auto at_layer = [](int node, EpochNumber generation, Samples samples, std::int32_t layer) {
    return failure(FailureKind::unexplained, node, generation, std::move(samples), kStep, layer);
  };
  StepFailures failures;
  // By hand: eight stages that share all samples of a step, and are lost one by one.
  for (int stage = 0; stage < 8; ++stage)
    CHECK_FALSE(failures.add(at_layer(stage, stage + 1, {"a", "b"}, stage)));
  CHECK_FALSE(failures.add(at_layer(8, 9, {"a"}, 3)));          // The second one with layer 3,
  CHECK_FALSE(failures.add(at_layer(9, 10, {"c"}, 3)));         // of another sample,
  const auto again = failures.add(at_layer(10, 11, {"a"}, 3));  // and the third.
  REQUIRE(again);
  CHECK(again->code == Errc::transport_failed);
  CHECK(says(*again, "for samples 'a': node 3: how 3 ended; node 8: how 8 ended; node 10: how"));
}

TEST_CASE("a device that fails says nothing of what it computed", "[actors]") {
  const auto device = [](int node, EpochNumber generation, Samples samples) {
    return failure(FailureKind::device, node, generation, std::move(samples));
  };
  StepFailures failures;
  CHECK_FALSE(failures.add(device(1, 1, {"a", "b"})));
  CHECK_FALSE(failures.explain(NodeId{1}, "was killed by signal 6", SIGABRT));  // It knew better.
  SECTION("another one of the same step may be chance") {
    CHECK_FALSE(failures.add(device(2, 2, {"a"})));
    // A third one is none: a kernel may do it.
    const auto again = failures.add(device(3, 3, {"a"}));
    REQUIRE(again);
    CHECK(again->code == Errc::transport_failed);
    CHECK(says(*again, "node 1: how 1 ended; node 2: how 2 ended; node 3: how 3 ended"));
  }
  SECTION("nor is a stage that throws beside it its repetition") {
    CHECK_FALSE(failures.add(thrown(2, 2, {"a"})));
    CHECK(failures.add(thrown(3, 3, {"a"})));
  }
}

TEST_CASE("what a process runs is not to blame for every signal", "[actors]") {
  for (const int own : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) CHECK(is_own_doing(own));
  for (const int other : {0, SIGKILL, SIGTERM, SIGINT, SIGHUP}) CHECK_FALSE(is_own_doing(other));
}

}  // namespace
}  // namespace troupe::actors
