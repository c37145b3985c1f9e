// Rows between stages by calls to the fake NCCL: devices of the tiny job in one process.

#include "tests/engine/calling_devices.hpp"
#include "tests/engine/tiny_cluster.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/device_errors.hpp"
#include "engine/execution/memory_promise.hpp"
#include "engine/execution/nccl_rows.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;
using transport::Tag;
using transport::TagKind;

constexpr std::chrono::seconds kEnough{20};

/// Calls whose sends arrive, but end only when they are told to. Receives may fail.
class LateRows final : public RowCalls {
 public:
  explicit LateRows(RowCalls& inner) : inner_(inner) {}

  bool sends_to(DeviceId other) const override { return inner_.sends_to(other); }
  bool receives_from(DeviceId other) const override { return inner_.receives_from(other); }
  transport::Operation send(DeviceId to, const Tag& tag, at::Tensor rows) override {
    inner_.send(to, tag, std::move(rows));
    pending_.push_back(transport::Completion::pending());
    return pending_.back().operation();
  }
  Result<Coming> receive(DeviceId from, const Tag& tag, at::IntArrayRef shape,
                         at::ScalarType type) override {
    if (refused) return *refused;
    return inner_.receive(from, tag, shape, type);
  }
  void give_up() override { inner_.give_up(); }

  /// Returns how many sends it ends.
  std::size_t end_sends(const Status& how) {
    for (const auto& send : pending_) send.complete(how);
    return std::exchange(pending_, {}).size();
  }

  std::optional<Error> refused;  ///< What receives fail with.

 private:
  RowCalls& inner_;
  std::vector<transport::Completion> pending_;
};

/// What executors use in place of what their devices have: as a base, so that it outlives them.
struct LateList {
  std::vector<std::unique_ptr<LateRows>> late;
};

/// A cluster whose rows are calls.
struct RowsCluster : LateList, CallingCluster<NcclRows> {
  explicit RowsCluster(std::chrono::milliseconds limit = kEnough, bool is_late = false,
                       MemoryPromise memory = {}, std::chrono::milliseconds opening = kOpening)
      : CallingCluster(
            limit,
            [this, is_late, memory](ExecutorOptions& options, NcclRows& rows) {
              options.rows = &rows;
              options.memory = memory;
              if (!is_late) return;
              late.push_back(std::make_unique<LateRows>(rows));
              options.rows = late.back().get();
            },
            {}, opening) {}

  /// Posts a receive of four numbers at device 1, from device 0.
  RowCalls::Coming receive(std::uint64_t index) {
    return of_device[1]->receive(DeviceId{0}, tag(index), {4}, at::kDouble).value();
  }
  transport::Operation send(std::uint64_t index, double value) {
    return of_device[0]->send(DeviceId{1}, tag(index), at::full({4}, value, at::kDouble));
  }
  static Tag tag(std::uint64_t index) { return {1, TagKind::rows, 99, index}; }
};

TEST_CASE("rows by calls give the bits of messages", "[engine]") {
  FakeCalls fake;
  Cluster messages(late_job());
  RowsCluster calls;
  const int none = (*fake).calls("send");
  calls.require_open(1);
  CHECK((*fake).calls("send") == none + 4);  // A byte on each lane: two pipelines, both ways.
  CHECK(calls.of_device[0]->sends_to(DeviceId{1}));
  CHECK(calls.of_device[1]->receives_from(DeviceId{0}));
  CHECK_FALSE(calls.of_device[0]->sends_to(DeviceId{2}));
  const int before = (*fake).calls("send");
  for (std::int64_t step = 0; step < 3; ++step) {
    messages.train(step);
    calls.cluster->train(step);
  }
  CHECK(are_equal(messages.parameters(), calls.cluster->parameters()));
  CHECK((*fake).calls("send") > before);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("rows come in the order in which they were asked for, however they are sent",
          "[engine]") {
  FakeCalls fake;
  RowsCluster calls;
  calls.require_open(1);
  const auto first = calls.receive(7);
  const auto sent_later = calls.send(8, 80);
  const auto second = calls.receive(8);
  CHECK_FALSE(second.operation.done());
  const auto sent = calls.send(7, 70);
  for (const auto& operation : {first.operation, second.operation, sent, sent_later})
    CHECK(operation.wait(transport::within(kEnough)).ok());
  CHECK(at::equal(first.rows, at::full({4}, 70, at::kDouble)));
  CHECK(at::equal(second.rows, at::full({4}, 80, at::kDouble)));
}

TEST_CASE("rows come into memory that compute reads too", "[engine]") {
  FakeCalls fake;
  RowsCluster calls;
  calls.require_open(1);
  const int before = transport::testing::shared_allocations();
  const auto coming = calls.receive(7);
  CHECK(transport::testing::shared_allocations() == before + 1);
  CHECK(calls.send(7, 70).wait(transport::within(kEnough)).ok());
  CHECK(coming.operation.wait(transport::within(kEnough)).ok());
}

TEST_CASE("who waits for rows that are not computed yet does not hang", "[engine]") {
  FakeCalls fake;
  RowsCluster calls(std::chrono::milliseconds(300));
  calls.require_open(1);
  const auto coming = calls.receive(7);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  CHECK_FALSE(coming.operation.done());
  const auto sent = calls.send(7, 70);
  CHECK(coming.operation.wait(transport::within(kEnough)).ok());
  CHECK(sent.wait(transport::within(kEnough)).ok());
  // And the other way round.
  const auto early = calls.send(8, 80);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  CHECK_FALSE(early.done());
  CHECK(calls.receive(8).operation.wait(transport::within(kEnough)).ok());
  CHECK(early.wait(transport::within(kEnough)).ok());
}

TEST_CASE("rows that hang end by their deadline with both devices' names", "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls(std::chrono::milliseconds(300));
  calls.require_open(1);
  (*fake).script("stall@send");
  calls.cluster->begin(0);
  const Status ended = calls.cluster->advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::timed_out);
  CHECK_THAT(ended.error().message, ContainsSubstring("NCCL group 'rows from device "));
  CHECK_THAT(ended.error().message, ContainsSubstring("of generation 1, rank "));

  // Who says so first counts as lost, by no fault of what it computed.
  const auto lost = calls.take_thrown();
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].by_device);
  CHECK((lost[0].error == ended.error()));
  calls.begin_anew(fake, 2);
  calls.cluster->train(1);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("a call that fails late ends the step, and the next generation trains",
          "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls;
  calls.require_open(1);
  (*fake).script("late=6@send#2");
  calls.cluster->begin(0);
  const Status ended = calls.cluster->advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::transport_failed);
  CHECK_THAT(ended.error().message, ContainsSubstring("NCCL group 'rows from device "));
  // As of one that hangs; the head waits for a lost node before.
  CHECK(std::ranges::count(calls.take_thrown(), true, &FailedWork::by_device) == 1);
  calls.begin_anew(fake, 2);
  calls.cluster->train(1);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("a call that fails behind PREPARED is told, and the step can be decided all the same",
          "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls(kEnough, /*is_late=*/true);
  calls.require_open(1);
  Cluster& cluster = *calls.cluster;
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  const Decision decision = cluster.outcome().decision;
  const bool is_decided = GENERATE(false, true);
  if (is_decided) cluster.decide(decision);
  const Error why{Errc::transport_failed, "it failed on its way", {}, {}};
  for (const std::size_t d : {0U, 2U, 3U}) calls.late[d]->end_sends(Done{});
  REQUIRE(calls.late[1]->end_sends(why) > 0);  // Gradients of the encoders' rows.
  if (!is_decided) REQUIRE(cluster.advance_to(Progress::committing).ok());
  // By hand: device 1 alone, once; nobody where all rows are known to have arrived.
  for (std::size_t d = 0; d < 4; ++d) {
    const auto failed = cluster.executor(d).take_thrown();
    REQUIRE(failed.has_value() == (d == 1 && !is_decided));
    if (!failed) continue;
    CHECK(failed->by_device);
    CHECK(failed->step == decision.step);
    CHECK((failed->error == why));
  }
  if (!is_decided) {
    REQUIRE(cluster.advance_to(Progress::committing).ok());
    CHECK_FALSE(cluster.executor(1).take_thrown());
  }
  cluster.decide(decision);
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  CHECK_FALSE(cluster.executor(1).take_thrown());
  Cluster messages(late_job());
  messages.train(0);
  CHECK(are_equal(messages.parameters(), cluster.parameters()));
}

TEST_CASE("a device that is lost as it posts receives says so as of a call", "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls(kEnough, /*is_late=*/true);
  calls.require_open(1);
  const Error why{Errc::transport_failed, "the device failed: an ECC error", {}, kDeviceFix};
  calls.late[1]->refused = why;
  calls.cluster->begin(0);
  const Status ended = calls.cluster->advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK((ended.error() == why));
  const auto lost = calls.take_thrown();
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].by_device);
  CHECK((lost[0].error == why));
}

TEST_CASE("a device without room for rows says what its plan gives it", "[engine][errors]") {
  FakeCalls fake;
  const MemoryPromise promise{Bytes{1'000'000'000'000}, Bytes{600'000'000}};
  RowsCluster calls(kEnough, /*is_late=*/true, promise);
  calls.require_open(1);
  const Error why{Errc::infeasible, "there is no room: CUDA out of memory", {}, {}};
  calls.late[1]->refused = why;
  calls.cluster->begin(0);
  const Status ended = calls.cluster->advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::infeasible);
  CHECK(ended.error().message == why.message + promise_words(promise) + ", in step 1 on device 1");
  CHECK(ended.error().fix == memory_fix(promise, true));
  CHECK(calls.take_thrown().empty());
}

TEST_CASE("a lost node ends the rows that move to or from it, and no others", "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls;
  calls.require_open(1);
  (*fake).script("stall@send stall@send#2");
  const auto coming = calls.receive(7);
  const auto sent = calls.send(7, 70);
  const auto other =
      calls.of_device[3]->receive(DeviceId{2}, RowsCluster::tag(7), {4}, at::kDouble);
  const auto sent_there =
      calls.of_device[2]->send(DeviceId{3}, RowsCluster::tag(7), at::full({4}, 1, at::kDouble));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (const auto& device : calls.of_device)
    device->lose(0, {Errc::transport_failed, "its process ended", {}, {}});
  const Status ended = coming.operation.wait(transport::within(kEnough));
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::transport_failed);
  CHECK_THAT(ended.error().message, ContainsSubstring("has lost rank 0: its process ended"));
  CHECK_FALSE(sent.wait(transport::within(kEnough)).ok());
  CHECK_FALSE(other.value().operation.done());
  CHECK_FALSE(sent_there.done());
}

TEST_CASE("who gives a step up leaves no rows under way", "[engine]") {
  FakeCalls fake;
  RowsCluster calls;
  calls.require_open(1);
  calls.of_device[1]->give_up();  // Nothing is under way: its lanes stay.
  const auto moved = calls.receive(6);
  CHECK(calls.send(6, 60).wait(transport::within(kEnough)).ok());
  CHECK(moved.operation.wait(transport::within(kEnough)).ok());
  const auto coming = calls.receive(7);
  calls.of_device[1]->give_up();
  const Status ended = coming.operation.wait(transport::within(kEnough));
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::cancelled);
  calls.require_open(2);
  const auto next = calls.receive(8);
  CHECK(calls.send(8, 80).wait(transport::within(kEnough)).ok());
  CHECK(next.operation.wait(transport::within(kEnough)).ok());
}

TEST_CASE("of a lane that does not connect one end alone hears that it is its own fault",
          "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls(kEnough, /*is_late=*/false, {}, std::chrono::seconds(9));
  (*fake).script("hang@group_end:1");  // Of one of the two pipelines.
  std::vector<Errc> failed;
  for (const Status& opened : calls.open(1)) {
    if (opened.ok()) continue;
    failed.push_back(opened.error().code);
    CHECK_THAT(opened.error().message, ContainsSubstring("NCCL group 'rows from device "));
    CHECK_THAT(opened.error().message, ContainsSubstring("rank 1 says: "));
  }
  std::ranges::sort(failed);
  std::vector<Errc> expected{Errc::timed_out, Errc::transport_failed};
  std::ranges::sort(expected);
  CHECK(std::ranges::equal(failed, expected));
  (*fake).script("");
  calls.require_open(2);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("rows without GPUs say what to do instead", "[engine][errors]") {
  FakeCalls fake;
  RowsCluster calls;
  transport::register_nccl_streams("cpu", {});
  for (const Status& status : calls.open(1)) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Errc::unavailable);
    CHECK(status.error().where == "cluster.rows");
    CHECK_THAT(status.error().fix, ContainsSubstring("cluster.rows = \"messages\""));
  }
}

}  // namespace
}  // namespace troupe::engine
