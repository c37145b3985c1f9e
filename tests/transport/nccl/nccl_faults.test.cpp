// An NCCL that hangs, fails late or at once, or never opens: every call ends in its time, and the
// next generation works.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <thread>

#include "tests/transport/nccl/ranks.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;

constexpr int kDeadlineMs = 200;
constexpr milliseconds kHang{10000};  // What no loaded machine needs.

class Stopwatch {
 public:
  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun_);
  }

 private:
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

void require_open(const std::vector<Status>& opened) {
  for (const auto& status : opened) {
    INFO((status.ok() ? "" : status.error().message));
    REQUIRE(status.ok());
  }
}

void check_sums(Ranks& ranks, const std::vector<Peer>& members, std::uint64_t seed) {
  for (const auto& outcome : ranks.sum(members, seed, 20000)) {
    INFO(outcome.message);
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == expected_digest(seed, members.size(), 9000));
  }
}

/// Nothing of NCCL is left over, and it was never used as it must not be.
void check_clean(Ranks& ranks, int live) {
  CHECK(ranks.live_soon(live) == live);
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("an operation that hangs ends by its deadline, with all its names",
          "[transport][errors]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 3));
  ranks.nccl().script("stall@launch:1");
  const Stopwatch watch;
  const auto outcomes = ranks.sum({0, 1}, 5, kDeadlineMs);
  CHECK(watch.elapsed() < kHang);
  CHECK(watch.elapsed() >= milliseconds(kDeadlineMs));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(outcomes[rank].code == Errc::timed_out);
    CHECK_THAT(outcomes[rank].message,
               ContainsSubstring("NCCL group 'sums' (7) of generation 3, rank " +
                                 std::to_string(rank) + " of 2"));
    CHECK_THAT(outcomes[rank].message, ContainsSubstring("all-reduce of 9000 fp32 (call 1)"));
  }
  // The group is broken, and says why, until the next generation.
  const auto again = ranks.sum({0, 1}, 5, kDeadlineMs);
  CHECK(again[0].message == outcomes[0].message);
  ranks.nccl().script("");
  require_open(ranks.open({0, 1}, 4));
  check_sums(ranks, {0, 1}, 6);
  check_clean(ranks, 2);
}

TEST_CASE("whatever goes wrong amid a sum, the next generation sums again", "[transport][errors]") {
  const auto script = GENERATE(
      as<std::string>{}, "hang@group_end:1", "hang@send:0", "error=3@send:0", "error=5@group_end:1",
      "late=6@launch:1", "stall@launch:0", "forever@group_end:0", "hang@state#3:1",
      "taken=600@group_end:1", "slow=400@group_end:0", "stall@launch:0 late=6@launch:1",
      "stall@launch:0 hang@revoke:0", "stall@launch:1 error=3@revoke:1",
      "stall@launch:1 slow=400@revoke:1", "stall@launch:1 slow=300@abort:1");
  const bool is_old = GENERATE(false, true);
  CAPTURE(script, is_old);
  Ranks ranks(2, is_old ? "fake_nccl_old" : "fake_nccl");
  require_open(ranks.open({0, 1}, 1));
  ranks.nccl().script(script);
  const Stopwatch watch;
  const auto outcomes = ranks.sum({0, 1}, 5, kDeadlineMs);
  CHECK(watch.elapsed() < kHang);
  CHECK((!outcomes[0].ok || !outcomes[1].ok));
  ranks.nccl().script(script.find("abort") == std::string::npos ? "" : "slow=300@abort:1");
  require_open(ranks.open({0, 1}, 2));
  check_sums(ranks, {0, 1}, 6);
  check_clean(ranks, 2);
}

TEST_CASE("a revoke that hangs is followed by an abort, asked for or not", "[transport][errors]") {
  Ranks ranks(1);
  require_open(ranks.open({0}, 1));
  ranks.nccl().script("stall@launch hang@revoke");
  std::vector<std::byte> rows(100);
  const NcclRowsTo to[] = {{0, {rows.data(), rows.size()}}};
  const auto send = ranks[0].group->exchange_rows(to, {}, within(milliseconds(kDeadlineMs)));
  CHECK(send.wait(within(kEnough)).error().code == Errc::timed_out);
  check_clean(ranks, 0);
}

TEST_CASE("a late error is told at once, not at the deadline", "[transport][errors]") {
  Ranks ranks(1);
  require_open(ranks.open({0}, 1));
  ranks.nccl().script("late=6@launch");
  std::vector<std::byte> rows(100);
  const NcclRowsTo to[] = {{0, {rows.data(), rows.size()}}};
  const Stopwatch watch;
  const auto status = ranks[0].group->exchange_rows(to, {}, within(kEnough)).wait(within(kEnough));
  CHECK(watch.elapsed() < kHang);
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == Errc::transport_failed);
  CHECK_THAT(status.error().message, ContainsSubstring("remote error"));
}

TEST_CASE("an opening that fails at one rank is tried again by all", "[transport][errors]") {
  const auto script =
      GENERATE(as<std::string>{}, "error=2@init:1", "never@init:0", "absent@init:1", "hang@init:1",
               "error=2@id", "forever@id", "hang@state:0", "never@init:0 error=2@init#2:1");
  CAPTURE(script);
  Ranks ranks(2);
  ranks.options.attempt = milliseconds(300);
  ranks.nccl().script(script);
  const Stopwatch watch;
  require_open(ranks.open({0, 1}, 1));
  CHECK(watch.elapsed() < kHang);
  ranks.nccl().script("");
  check_sums(ranks, {0, 1}, 6);
  check_clean(ranks, 2);
}

TEST_CASE("an opening that always fails ends with the rank and its reason", "[transport][errors]") {
  const bool hangs = GENERATE(false, true);
  Ranks ranks(2);
  ranks.options.attempt = milliseconds(300);
  ranks.options.attempts_max = 2;
  ranks.nccl().script(hangs ? "absent@init:1 absent@init#2:1" : "error=2@init:1 error=2@init#2:1");
  const auto inits = ranks.nccl().calls("init");
  for (const auto& status : ranks.open({0, 1}, 1)) {
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message, ContainsSubstring("NCCL group 'sums' (7) of generation 1"));
    // Not rank 0's, which has only waited for the other.
    CHECK_THAT(status.error().message,
               ContainsSubstring(hangs ? "rank 0 says: " : "rank 1 says: "));
    CHECK_THAT(status.error().message,
               ContainsSubstring(hangs ? "opening has not ended after" : "system error"));
  }
  CHECK(ranks.nccl().calls("init") == inits + 4);
  check_clean(ranks, 0);
}

TEST_CASE(
    "of an opening that hangs the rank is named whose call it is, and hears that it is its own",
    "[transport][errors]") {
  // Where both calls have returned nobody knows whose NCCL it is: the first rank counts.
  const auto [script, named, words] = GENERATE(table<std::string, std::size_t, std::string>(
      {{"hang@init:1 hang@init#2:1 never@init:0 never@init#2:0", 1,
        "the call that opens it has not ended after"},
       {"hang@id hang@id#2", 0, "the call that makes its id has not ended after"},
       {"absent@init:1 absent@init#2:1", 0, "opening has not ended after"}}));
  Ranks ranks(2);
  ranks.options.attempt = milliseconds(300);
  ranks.options.attempts_max = 2;
  ranks.nccl().script(script);
  const auto opened = ranks.open({0, 1}, 1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CAPTURE(script, rank);
    REQUIRE_FALSE(opened[rank].ok());
    const Error& why = opened[rank].error();
    CHECK(why.code == (rank == named ? Errc::timed_out : Errc::transport_failed));
    CHECK_THAT(why.message, ContainsSubstring("rank " + std::to_string(named) + " says: "));
    CHECK_THAT(why.message, ContainsSubstring(words));
  }
  check_clean(ranks, 0);
}

TEST_CASE("who waits in vain for the other ranks to meet does not call it its own fault",
          "[transport][errors]") {
  Ranks ranks(2);
  const auto limit = milliseconds(300);
  auto& rank = ranks[0];
  auto options = ranks.options;
  options.members = {0, 1};
  options.rank = 0;
  options.generation = 1;
  const auto made =
      NcclGroup::create(*rank.transport, rank.context, rank.stream, options, within(limit));
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == Errc::transport_failed);
}

TEST_CASE("a shrinking that fails is followed by a new communicator", "[transport][errors]") {
  const auto script = GENERATE(as<std::string>{}, "error=3@shrink:0", "never@shrink:0",
                               "absent@shrink:1", "hang@shrink:1", "forever@shrink:0");
  CAPTURE(script);
  Ranks ranks(3);
  ranks.options.attempt = milliseconds(300);
  require_open(ranks.open({0, 1, 2}, 1));
  ranks[2].group.reset();
  const auto inits = ranks.nccl().calls("init");
  ranks.nccl().script(script);
  const auto opened = ranks.open({0, 1}, 2);
  if (script == "forever@shrink:0") {
    // A call that does not come back, whatever is aborted: the process has to end.
    REQUIRE_FALSE(opened[0].ok());
    CHECK_THAT(opened[0].error().message, ContainsSubstring("NCCL does not let go of it"));
    return;
  }
  require_open(opened);
  CHECK(ranks.nccl().calls("init") == inits + 2);
  ranks.nccl().script("");
  check_sums(ranks, {0, 1}, 6);
  check_clean(ranks, 2);
}

TEST_CASE("an NCCL that does not let go is named, at all ranks and in time",
          "[transport][errors]") {
  Ranks ranks(2);
  ranks.options.may_shrink = false;
  ranks.options.attempt = milliseconds(300);
  require_open(ranks.open({0, 1}, 1));
  ranks.nccl().script("forever@abort:1");
  const Stopwatch watch;
  for (const auto& status : ranks.open({0, 1}, 2)) {
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message, ContainsSubstring("rank 1 says: "));
    CHECK_THAT(status.error().message, ContainsSubstring("NCCL does not let go of it"));
  }
  CHECK(watch.elapsed() < kHang);
}

TEST_CASE("a lost node ends what is under way at once", "[transport][errors]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  std::vector<std::byte> rows(100);
  const NcclRowsFrom from[] = {{1, {rows.data(), rows.size()}}};
  const auto receive = ranks[0].group->exchange_rows({}, from, within(kEnough));
  ranks[0].group->lose(5, {Errc::transport_failed, "no member", "", ""});
  CHECK(receive.wait(within(milliseconds(50))).error().code == Errc::timed_out);  // Goes on.
  CHECK_FALSE(receive.done());
  ranks[0].group->lose(1, {Errc::transport_failed, "peer 1 has gone", "", ""});
  const auto status = receive.wait(within(milliseconds(2000)));
  CHECK(status.error().code == Errc::transport_failed);
  CHECK_THAT(status.error().message, ContainsSubstring("has lost rank 1: peer 1 has gone"));
  ranks[1].group.reset();
  require_open(ranks.open({0}, 2));
  check_sums(ranks, {0}, 6);
  check_clean(ranks, 1);
}

TEST_CASE("a split that fails leaves no communicator behind", "[transport][errors]") {
  const auto script = GENERATE(as<std::string>{}, "error=3@split:0", "never@split:1",
                               "hang@split:0", "absent@split:1");
  CAPTURE(script);
  Ranks ranks(2);
  ranks.options.attempt = milliseconds(300);
  require_open(ranks.open({0, 1}, 1));
  ranks.nccl().script(script);
  const auto parts = ranks.each({0, 1}, [&](std::size_t rank) {
    const auto part = ranks[rank].group->split(0, 30, "part", ranks[rank].stream, within(kEnough));
    return part.ok() ? std::string() : part.error().message;
  });
  for (const auto& why : parts) {
    CHECK_THAT(why, ContainsSubstring("NCCL group 'part' (30) of generation 1"));
    CHECK_THAT(why, ContainsSubstring("cannot be split off"));
  }
  ranks.nccl().script("");
  require_open(ranks.open({0, 1}, 2));
  check_sums(ranks, {0, 1}, 6);
  check_clean(ranks, 2);
}

TEST_CASE("a communicator is not aborted amid a call that comes back soon", "[transport][errors]") {
  Ranks ranks(1);
  require_open(ranks.open({0}, 1));
  // An abort takes the place of a revoke that has not come back after half a second.
  ranks.nccl().script("stall@launch calm=530@revoke");
  std::vector<std::byte> rows(100);
  const NcclRowsTo to[] = {{0, {rows.data(), rows.size()}}};
  const auto limit = within(milliseconds(kDeadlineMs));
  const auto send = ranks[0].group->exchange_rows(to, {}, limit);
  CHECK(send.wait(within(kEnough)).error().code == Errc::timed_out);
  check_clean(ranks, 0);
}

TEST_CASE("what a broken group held is let go of when NCCL is done with it",
          "[transport][errors]") {
  Ranks ranks(1);
  require_open(ranks.open({0}, 1));
  ranks.nccl().script("stall@launch slow=500@revoke");
  std::weak_ptr<std::vector<std::byte>> held;
  const auto limit = within(milliseconds(kDeadlineMs));
  const auto send = [&] {
    const auto owner = std::make_shared<std::vector<std::byte>>(100);
    held = owner;
    const NcclRowsTo to[] = {{0, {owner->data(), owner->size(), owner}}};
    return ranks[0].group->exchange_rows(to, {}, limit);
  }();
  CHECK(send.wait(within(kEnough)).error().code == Errc::timed_out);
  std::this_thread::sleep_for(milliseconds(50));
  CHECK_FALSE(held.expired());  // It may still be read.
  ranks[0].group.reset();
  CHECK(ranks.live_soon(0) == 0);
  const auto soon = within(kEnough);
  while (!held.expired() && std::chrono::steady_clock::now() < soon) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(held.expired());
}

}  // namespace
}  // namespace troupe::transport::testing
