// Groups whose ranks connect before their first sums: on the fake NCCL, which begins the first work
// between two ranks when both have launched some.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.hpp"
#include "tests/transport/nccl/nccl_process.hpp"
#include "tests/transport/nccl/ranks.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;

constexpr milliseconds kSoon{200};
constexpr milliseconds kHangs{1000};  // So that a call counts as one that hangs.

void require_ok(const std::vector<Status>& all) {
  for (const auto& status : all) {
    INFO((status.ok() ? "" : status.error().message));
    REQUIRE(status.ok());
  }
}

Operation begin_warm_up(Ranks& ranks, std::size_t rank, milliseconds limit = kEnough) {
  return ranks[rank].group->begin_warm_up({9000, 1, 9000}, within(limit));
}

/// The warm-ups of these ranks, begun by one thread.
std::vector<Status> warm_up(Ranks& ranks, std::size_t count, milliseconds limit = kEnough) {
  std::vector<Operation> begun;
  for (std::size_t rank = 0; rank < count; ++rank) {
    begun.push_back(begin_warm_up(ranks, rank, limit));
  }
  std::vector<Status> ended;
  for (const auto& one : begun) ended.push_back(one.wait(within(kEnough)));
  return ended;
}

/// What each rank hears of all warm-ups, of which it knows how its own ended.
std::vector<Status> compare(Ranks& ranks, const std::vector<Status>& ended) {
  return ranks.each({0, 1, 2}, [&](std::size_t rank) {
    return ranks[rank].group->compare(ended[rank], within(kEnough));
  });
}

void check_sums(Ranks& ranks, const std::vector<Peer>& members) {
  for (const auto& outcome : ranks.sum(members, 6, 20000)) {
    INFO(outcome.message);
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == expected_digest(6, members.size(), 9000));
  }
}

TEST_CASE("after a warm-up the first sums connect nobody", "[transport]") {
  const auto order = GENERATE(NcclSums::in_rank_order, NcclSums::as_nccl_likes);
  CAPTURE(static_cast<int>(order));
  Ranks ranks(3);
  ranks.options.sums = order;
  require_ok(ranks.open({0, 1, 2}, 1));
  const auto connects = [&] { return ranks.nccl().calls("connect"); };
  const auto cold = connects(), sums = ranks.nccl().calls("all_reduce");
  require_ok(warm_up(ranks, 3));
  const auto warm = connects();
  CHECK(warm == cold + 3);
  // By hand: NCCL may go another way for each of two lengths; in rank order sums are no such calls.
  CHECK(ranks.nccl().calls("all_reduce") == sums + (order == NcclSums::as_nccl_likes ? 6 : 0));
  // Of one element rank 0 alone has a shard, of 9000 all three have: 4096, 4096 and 808.
  for (const std::size_t count : {std::size_t{1}, std::size_t{9000}}) {
    for (const auto& outcome : ranks.sum({0, 1, 2}, 5, 20000, count)) {
      INFO(outcome.message);
      REQUIRE(outcome.ok);
      if (order == NcclSums::in_rank_order) CHECK(outcome.digest == expected_digest(5, 3, count));
    }
  }
  CHECK(connects() == warm);
  // Without one they do.
  require_ok(ranks.open({0, 1, 2}, 2));
  for (const auto& outcome : ranks.sum({0, 1, 2}, 5, 20000)) CHECK(outcome.ok);
  CHECK(connects() == warm + 3);
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("a warm-up sums no more than 32 MiB", "[transport]") {
  Ranks ranks(1);
  require_ok(ranks.open({0}, 1));
  // 2^60 elements: no machine has them.
  const auto warm = ranks[0].group->begin_warm_up({std::size_t{1} << 60}, within(kEnough));
  require_ok({warm.wait(within(kEnough))});
}

TEST_CASE("a warm-up has no number among a group's calls", "[transport][errors]") {
  Ranks ranks(2);
  require_ok(ranks.open({0, 1}, 1));
  require_ok(warm_up(ranks, 2));
  ranks.nccl().script("stall@launch:1");
  for (const auto& outcome : ranks.sum({0, 1}, 5, static_cast<int>(kSoon.count()))) {
    CHECK_THAT(outcome.message, ContainsSubstring("all-reduce of 9000 fp32 (call 1)"));
  }
}

TEST_CASE("a warm-up that hangs ends by its deadline, with all its names", "[transport][errors]") {
  Ranks ranks(2);
  require_ok(ranks.open({0, 1}, 1));
  ranks.nccl().script("stall@launch:1");
  const auto ended = warm_up(ranks, 2, kSoon);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    REQUIRE_FALSE(ended[rank].ok());
    CHECK(ended[rank].error().code == Errc::timed_out);
    CHECK_THAT(ended[rank].error().message,
               ContainsSubstring("NCCL group 'sums' (7) of generation 1, rank " +
                                 std::to_string(rank) + " of 2: warm-up has not ended after"));
  }
  ranks.nccl().script("");
  require_ok(ranks.open({0, 1}, 2));
  require_ok(warm_up(ranks, 2));
  check_sums(ranks, {0, 1});
  CHECK(ranks.live_soon(2) == 2);
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("of a warm-up that hangs one rank hears that it is its own fault, whose call it is",
          "[transport][errors]") {
  // Where all calls have returned nobody knows whose NCCL it is: the first rank counts.
  const auto [script, named] = GENERATE(table<std::string, std::size_t>(
      {{"hang@group_end:1", 1}, {"hang@state:2", 2}, {"stall@launch:1", 0}}));
  CAPTURE(script);
  Ranks ranks(3);
  require_ok(ranks.open({0, 1, 2}, 1));
  ranks.nccl().script(script);
  const auto ended = warm_up(ranks, 3, kHangs);
  const auto heard = compare(ranks, ended);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    REQUIRE_FALSE(ended[rank].ok());
    CHECK(ended[rank].error().code == Errc::timed_out);
    REQUIRE_FALSE(heard[rank].ok());
    const Error& why = heard[rank].error();
    CHECK(why.code == (rank == named ? Errc::timed_out : Errc::transport_failed));
    CHECK_THAT(
        why.message,
        ContainsSubstring("NCCL group 'sums' (7) of generation 1, rank " + std::to_string(rank) +
                          " of 3 does not connect: rank " + std::to_string(named) + " says: "));
    CHECK_THAT(why.message, ContainsSubstring("warm-up has not ended after"));
  }
  ranks.nccl().script("");
  require_ok(ranks.open({0, 1, 2}, 2));
  const auto next = warm_up(ranks, 3);
  require_ok(next);
  require_ok(compare(ranks, next));
  check_sums(ranks, {0, 1, 2});
}

TEST_CASE("who waits for a rank whose warm-up fails does not call it its own fault",
          "[transport][errors]") {
  Ranks ranks(3);
  require_ok(ranks.open({0, 1, 2}, 1));
  ranks.nccl().script("error=3@group_end:1");
  const auto heard = compare(ranks, warm_up(ranks, 3, kSoon));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    REQUIRE_FALSE(heard[rank].ok());
    CHECK(heard[rank].error().code == Errc::transport_failed);
    // Itself it knows best what NCCL says.
    CHECK((heard[rank].error().message.find("rank 1 says: ") != std::string::npos) == (rank != 1));
  }
}

TEST_CASE("who hears nothing of the others' warm-ups does not call it its own fault",
          "[transport][errors]") {
  Ranks ranks(2);
  require_ok(ranks.open({0, 1}, 1));
  // Rank 1 does not come, neither to the one nor to the other.
  const auto ended = begin_warm_up(ranks, 0, kSoon).wait(within(kEnough));
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::timed_out);
  const auto heard = ranks[0].group->compare(ended, within(kSoon));
  REQUIRE_FALSE(heard.ok());
  CHECK(heard.error().code == Errc::transport_failed);
}

TEST_CASE("a node that is lost amid a warm-up ends it with its name", "[transport][errors]") {
  Ranks ranks(2);
  require_ok(ranks.open({0, 1}, 1));
  const auto warm = begin_warm_up(ranks, 0);  // Rank 1 does not come.
  ranks[0].group->lose(1, {Errc::transport_failed, "peer 1 has gone", "", ""});
  const auto ended = warm.wait(within(kEnough));
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::transport_failed);
  CHECK_THAT(ended.error().message, ContainsSubstring("'sums' has lost rank 1: peer 1 has gone"));
  ranks[1].group.reset();
  require_ok(ranks.open({0}, 2));
  require_ok(warm_up(ranks, 1));
  check_sums(ranks, {0});
  CHECK(ranks.live_soon(1) == 1);
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("a later generation ends a warm-up", "[transport][errors]") {
  Ranks ranks(2);
  require_ok(ranks.open({0, 1}, 1));
  const auto warm = begin_warm_up(ranks, 0);  // Rank 1 has heard of generation 2 before.
  require_ok(ranks.open({0, 1}, 2));
  const auto ended = warm.wait(within(kEnough));
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::cancelled);
  CHECK_THAT(ended.error().message, ContainsSubstring("generation 1 is over"));
  require_ok(warm_up(ranks, 2));
  check_sums(ranks, {0, 1});
  CHECK(ranks.nccl().first_misuse() == "");
}

/// Two processes with a device each.
class Pair {
 public:
  Pair() {
    signal(SIGPIPE, SIG_IGN);
    setenv("FAKE_NCCL_FOLDER", folder_.path().c_str(), 1);
    for (Peer node = 0; node < 2; ++node) nodes_.push_back(std::make_unique<NcclProcess>(node));
    REQUIRE(nodes_[0]->ask("connect 1 " + nodes_[1]->ask("address")) == "ok");
    REQUIRE(nodes_[1]->ask("connect 0 " + nodes_[0]->ask("address")) == "ok");
  }

  NcclProcess& operator[](std::size_t index) { return *nodes_[index]; }

  /// Tells each its line, at once; what they answer.
  std::vector<std::string> ask(const std::string& first, const std::string& second) {
    nodes_[0]->tell(first);
    nodes_[1]->tell(second);
    return {nodes_[0]->answer(), nodes_[1]->answer()};
  }

  /// The processes open these groups.
  std::vector<std::string> open(int first, int second, int generation, int limit_ms = 15000) {
    const auto line = [=](int number, int rank) {
      return "open " + std::to_string(number) + " " + std::to_string(generation) + " " +
             std::to_string(limit_ms) + " 5000 1 " + std::to_string(rank) + " 0 1";
    };
    return ask(line(first, 0), line(second, 1));
  }

 private:
  troupe::testing::ScratchFolder folder_;
  std::vector<std::unique_ptr<NcclProcess>> nodes_;
};

void check_each(const std::vector<std::string>& answers, const std::string& begins) {
  for (const auto& answer : answers) {
    CAPTURE(answer, begins);
    CHECK(answer.starts_with(begins));
  }
}

TEST_CASE("warm-ups in opposite orders hold up neither each other nor their device",
          "[transport]") {
  Pair pair;
  for (const int number : {7, 8}) check_each(pair.open(number, number, 1), "ok");
  check_each(pair.ask("warm 10000 7 8", "warm 10000 8 7"), "ok");
  check_each(pair.ask("step 7 8 5 9000 1000 10000", "step 7 8 5 9000 1000 10000"), "ok ");
  check_each(pair.ask("state", "state"), "ok 2 0 ");
}

TEST_CASE("groups that two processes open in opposite orders end by their deadlines",
          "[transport][errors]") {
  Pair pair;
  // They meet over the transport before either warms up.
  check_each(pair.open(7, 8, 1, 1000), "failed transport failed");
  check_each(pair.open(8, 7, 1, 1000), "failed transport failed");
  for (const int number : {7, 8}) {
    check_each(pair.open(number, number, 2), "ok");
    const auto line = "warm 10000 " + std::to_string(number);
    check_each(pair.ask(line, line), "ok");
  }
  check_each(pair.ask("step 7 8 5 9000 1000 10000", "step 7 8 5 9000 1000 10000"), "ok ");
  check_each(pair.ask("state", "state"), "ok 2 0 ");
}

TEST_CASE("a process that dies amid a warm-up ends it with its name", "[transport][errors]") {
  Pair pair;
  check_each(pair.open(7, 7, 1), "ok");
  REQUIRE(pair[1].ask("script die@group_end") == "ok");
  const auto answers = pair.ask("warm 15000 7", "warm 15000 7");
  CHECK_THAT(answers[0], ContainsSubstring("failed transport failed the NCCL group 'group 7' has "
                                           "lost rank 1"));
  CHECK(answers[1] == "gone");
}

}  // namespace
}  // namespace troupe::transport::testing
