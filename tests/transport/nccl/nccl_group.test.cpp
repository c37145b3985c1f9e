// Groups over the fake NCCL that works: sums, rows, splits, and the next generation.

#include "transport/nccl/nccl_group.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <thread>

#include "tests/transport/nccl/ranks.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;

void require_open(const std::vector<Status>& opened) {
  for (const auto& status : opened) {
    INFO((status.ok() ? "" : status.error().message));
    REQUIRE(status.ok());
  }
}

void check_sums(const std::vector<Outcome>& outcomes, std::uint64_t digest) {
  for (const auto& outcome : outcomes) {
    INFO(outcome.message);
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == digest);
  }
}

/// The same call of all ranks, in host memory over the transport and over NCCL.
void check_as_group(Ranks& ranks, CollectiveCall call) {
  const auto outcomes = ranks.each(call.members, [&](std::size_t place) {
    auto own = call;
    own.rank = static_cast<std::int32_t>(place);
    auto& rank = ranks[static_cast<std::size_t>(call.members[place])];
    auto group = Group::create(*rank.transport, {call.members, own.rank, 9, call.group_id});
    const auto expected = run_collective(group.value(), own);
    return std::pair(expected, run_collective(*rank.group, own));
  });
  for (const auto& [expected, outcome] : outcomes) {
    INFO(outcome.message);
    REQUIRE(expected.ok);
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == expected.digest);
  }
}

TEST_CASE("in rank order NCCL's groups give the bits of a group in host memory", "[transport]") {
  Ranks ranks(3);
  const std::vector<Peer> members{2, 0, 1};
  require_open(ranks.open(members, 1));
  CollectiveCall call;
  call.members = members;
  for (const auto* kind :
       {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier"}) {
    for (const auto scalar : {Scalar::fp32, Scalar::fp64, Scalar::bf16, Scalar::int64}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{30011}}) {
        CAPTURE(kind, static_cast<int>(scalar), count);
        call.kind = kind;
        call.scalar = scalar;
        call.count = count;
        ++call.seed;
        ++call.group_id;
        check_as_group(ranks, call);
      }
    }
  }
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("a sum may go on while its ranks do something else", "[transport][errors]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  // By hand: rank r brings r + 1, so the sum is 3. One thread enters both.
  std::vector<std::shared_ptr<std::vector<float>>> data;
  std::vector<Operation> sums;
  for (std::size_t r = 0; r < 2; ++r) {
    if (r == 1) CHECK_FALSE(sums.front().done());  // It cannot end before both have entered.
    data.push_back(std::make_shared<std::vector<float>>(9000, static_cast<float>(r + 1)));
    auto& own = *data.back();
    sums.push_back(ranks[r].group->begin_all_reduce(
        {own.data(), own.size() * sizeof(float), data.back()}, Scalar::fp32, within(kEnough)));
  }
  for (const auto& sum : sums) REQUIRE(sum.wait(within(kEnough)).ok());
  for (const auto& own : data) CHECK(*own == std::vector<float>(9000, 3));
  const auto odd = ranks[0].group->begin_all_reduce({data[0]->data(), 7, data[0]}, Scalar::fp32,
                                                    within(kEnough));
  REQUIRE(odd.done());
  CHECK(odd.wait(within(kEnough)).error().code == Errc::invalid_argument);
}

TEST_CASE("a sum that was entered ends with its group", "[transport][errors]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  const auto data = std::make_shared<std::vector<float>>(9000, 1.0F);
  const auto sum = ranks[0].group->begin_all_reduce(
      {data->data(), data->size() * sizeof(float), data}, Scalar::fp32, within(kEnough));
  ranks[0].group->end({Errc::cancelled, "its step was given up", {}, {}});
  CHECK(sum.wait(within(kEnough)).error().code == Errc::cancelled);
}

TEST_CASE("a group's successor has the name and number that all its ranks give it", "[transport]") {
  Ranks ranks(3);
  require_open(ranks.open({0, 1, 2}, 1));
  // Ranks that come from one group, and one that had none: they agree on what the new one is.
  ranks[1].group.reset();
  const auto opened = ranks.each({0, 1}, [&](std::size_t place) {
    auto options = ranks.options;
    options.name = "gradients of llm.layers.3";
    options.group_id = 77;
    options.members = {0, 1};
    options.rank = static_cast<std::int32_t>(place);
    options.generation = 2;
    auto& rank = ranks[place];
    auto made = rank.group ? NcclGroup::succeed(std::move(rank.group), options, within(kEnough))
                           : NcclGroup::create(*rank.transport, rank.context, rank.stream, options,
                                               within(kEnough));
    if (!made) return Status(made.error());
    rank.group = std::move(made).value();
    return Status(Done{});
  });
  require_open(opened);
  check_sums(ranks.sum({0, 1}, 5, 20000), expected_digest(5, 2, 9000));
}

TEST_CASE("NCCL's own order is taken where it is asked for", "[transport]") {
  Ranks ranks(2);
  ranks.options.sums = NcclSums::as_nccl_likes;
  require_open(ranks.open({0, 1}, 1));
  // By hand: the fake adds from the last rank to the first; of two the sum is the same.
  check_sums(ranks.sum({0, 1}, 5, 20000), expected_digest(5, 2, 9000));
  const auto before = ranks.nccl().calls("all_reduce");
  CHECK(before >= 2);
  CollectiveCall call;
  call.members = {0, 1};
  call.kind = "reduce_scatter";
  call.count = 5000;
  call.seed = 3;
  check_as_group(ranks, call);
  CHECK(ranks.nccl().calls("reduce") > 0);
}

TEST_CASE("of three ranks NCCL's own order has other bits, the same everywhere", "[transport]") {
  Ranks ranks(3);
  ranks.options.sums = NcclSums::as_nccl_likes;
  require_open(ranks.open({0, 1, 2}, 1));
  const auto outcomes = ranks.sum({0, 1, 2}, 5, 20000);
  check_sums(outcomes, outcomes.front().digest);
  CHECK(outcomes.front().digest != expected_digest(5, 3, 9000));
}

TEST_CASE("rows go both ways at once, and nobody waits for them", "[transport]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  constexpr std::size_t kBytes = 300000;  // More than a ring holds: neither side ends alone.
  std::vector<std::byte> sent[2] = {pattern(1, kBytes), pattern(2, kBytes)};
  std::vector<std::byte> received[2] = {std::vector<std::byte>(kBytes),
                                        std::vector<std::byte>(kBytes)};
  std::vector<Operation> operations;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const NcclRowsTo to[] = {{1 - rank, {sent[rank].data(), kBytes}}};
    const NcclRowsFrom from[] = {{1 - rank, {received[rank].data(), kBytes}}};
    operations.push_back(
        ranks[static_cast<std::size_t>(rank)].group->exchange_rows(to, from, within(kEnough)));
  }
  for (const auto& operation : operations) CHECK(operation.wait(within(kEnough)).ok());
  CHECK(received[0] == sent[1]);
  CHECK(received[1] == sent[0]);
  const NcclRowsTo nobody[] = {{2, {sent[0].data(), 1}}};
  const auto refused = ranks[0].group->exchange_rows(nobody, {}, within(kEnough));
  CHECK(refused.wait(within(kEnough)).error().code == Errc::invalid_argument);
}

TEST_CASE("work that NCCL takes in slowly is waited for, not overtaken", "[transport]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  // By hand: the receive is not done before its sender has begun, however late NCCL takes it in.
  static const auto sent = pattern(1, 1000);
  static std::vector<std::byte> received(sent.size());
  ranks.nccl().script("taken=20@group_end:1");
  const NcclRowsFrom from[] = {{0, {received.data(), received.size()}}};
  const auto receive = ranks[1].group->exchange_rows({}, from, within(kEnough));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  REQUIRE_FALSE(receive.done());
  const NcclRowsTo to[] = {{1, {sent.data(), sent.size()}}};
  CHECK(ranks[0].group->exchange_rows(to, {}, within(kEnough)).wait(within(kEnough)).ok());
  CHECK(receive.wait(within(kEnough)).ok());
  CHECK(received == sent);
  ranks.nccl().script("taken=30@group_end:0 taken=10@group_end#2:1");
  check_sums(ranks.sum({0, 1}, 5, 20000), expected_digest(5, 2, 9000));
  CHECK(ranks.nccl().first_misuse() == "");
}

/// A sum of ones, entered by this rank.
Operation enter_sum(Ranks& ranks, std::size_t rank) {
  const auto data = std::make_shared<std::vector<float>>(9000, 1.0F);
  return ranks[rank].group->begin_all_reduce({data->data(), data->size() * sizeof(float), data},
                                             Scalar::fp32, within(kEnough));
}

/// A group of the same two ranks with streams of its own, at each.
std::vector<std::unique_ptr<NcclGroup>> split_off(Ranks& ranks) {
  auto made = ranks.each({0, 1}, [&](std::size_t rank) {
    const auto stream = ranks.nccl().stream("gpu " + std::to_string(rank));
    return ranks[rank].group->split(0, 30, "rows", stream, within(kEnough));
  });
  std::vector<std::unique_ptr<NcclGroup>> groups;
  for (auto& group : made) {
    INFO((group.ok() ? "" : group.error().message));
    REQUIRE(group.ok());
    groups.push_back(std::move(group).value());
  }
  return groups;
}

TEST_CASE("a first sum that waits for its peers holds up no rows of its device", "[transport]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  const auto groups = split_off(ranks);
  // Rank 0 has entered; rank 1 does so when it has the rows that rank 0 sends behind.
  const auto first = enter_sum(ranks, 0);
  std::vector<std::byte> sent = pattern(1, 1000), received(sent.size());
  const NcclRowsTo to[] = {{1, {sent.data(), sent.size()}}};
  const NcclRowsFrom from[] = {{0, {received.data(), received.size()}}};
  const auto send = groups[0]->exchange_rows(to, {}, within(kEnough));
  const auto receive = groups[1]->exchange_rows({}, from, within(kEnough));
  REQUIRE(receive.wait(within(kEnough)).ok());
  CHECK(send.wait(within(kEnough)).ok());
  CHECK(received == sent);
  CHECK_FALSE(first.done());
  const auto second = enter_sum(ranks, 1);
  CHECK(first.wait(within(kEnough)).ok());
  CHECK(second.wait(within(kEnough)).ok());
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("launches of a group that wait for its peers keep their order", "[transport]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  std::vector<Operation> sums;
  for (const std::size_t rank : {0, 0, 0, 1, 1, 1}) sums.push_back(enter_sum(ranks, rank));
  for (const auto& sum : sums) CHECK(sum.wait(within(kEnough)).ok());
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("what has ended is told while NCCL takes in what comes behind", "[transport]") {
  Ranks ranks(2);
  ranks.options.sums = NcclSums::as_nccl_likes;  // Of one call each.
  require_open(ranks.open({0, 1}, 1));
  ranks.nccl().script("slow=50@all_reduce:1 taken=60000@all_reduce#2:0");
  const auto first = enter_sum(ranks, 0), later = enter_sum(ranks, 0);
  const auto peer = enter_sum(ranks, 1);
  CHECK(peer.wait(within(kEnough)).ok());
  CHECK(first.wait(within(kEnough)).ok());
  CHECK_FALSE(later.done());
}

TEST_CASE("a group that is split off waits until NCCL has taken in what was launched",
          "[transport]") {
  Ranks ranks(2);
  require_open(ranks.open({0, 1}, 1));
  ranks.nccl().script("taken=100@group_end:0 taken=100@group_end:1");
  const auto first = enter_sum(ranks, 0), second = enter_sum(ranks, 1);
  const auto groups = split_off(ranks);
  CHECK(first.wait(within(kEnough)).ok());
  CHECK(second.wait(within(kEnough)).ok());
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("a group is split into smaller ones, and some ranks get none", "[transport]") {
  Ranks ranks(4);
  require_open(ranks.open({0, 1, 2, 3}, 1));
  // Ranks 0 and 3 together, 1 alone, 2 in none.
  const std::optional<std::int32_t> colors[] = {4, 9, std::nullopt, 4};
  auto parts = ranks.each({0, 1, 2, 3}, [&](std::size_t rank) {
    const auto stream = ranks.nccl().stream("gpu " + std::to_string(rank));
    return ranks[rank].group->split(colors[rank], 30, "part", stream, within(kEnough));
  });
  for (const auto& part : parts) {
    INFO((part.ok() ? "" : part.error().message));
    REQUIRE(part.ok());
  }
  CHECK(parts[2].value() == nullptr);
  CHECK(parts[1].value()->size() == 1);
  CHECK(parts[0].value()->size() == 2);
  CHECK(parts[3].value()->rank() == 1);
  const auto sums = ranks.each({0, 3}, [&](std::size_t place) {
    CollectiveCall call;
    call.kind = "all_reduce";
    call.members = {0, 3};
    call.rank = static_cast<std::int32_t>(place);
    call.count = 9000;
    call.seed = 8;
    return run_collective(*parts[place == 0 ? 0 : 3].value(), call);
  });
  check_sums(sums, expected_digest(8, 2, 9000));
  // The whole is as it was.
  check_sums(ranks.sum({0, 1, 2, 3}, 9, 20000), expected_digest(9, 4, 9000));
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("the next generation shrinks the group to the ranks that are left", "[transport]") {
  Ranks ranks(3);
  require_open(ranks.open({0, 1, 2}, 1));
  const auto inits = ranks.nccl().calls("init"), shrinks = ranks.nccl().calls("shrink");
  ranks[1].group.reset();
  require_open(ranks.open({0, 2}, 2));
  CHECK(ranks.nccl().calls("shrink") == shrinks + 2);
  CHECK(ranks.nccl().calls("init") == inits);
  check_sums(ranks.sum({0, 2}, 5, 20000), expected_digest(5, 2, 9000));
  CHECK(ranks.live_soon(2) == 2);
  // One that joins has nothing to shrink: all open a new one.
  require_open(ranks.open({0, 1, 2}, 3));
  CHECK(ranks.nccl().calls("init") == inits + 3);
  check_sums(ranks.sum({0, 1, 2}, 6, 20000), expected_digest(6, 3, 9000));
  CHECK(ranks.live_soon(3) == 3);
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("without shrinking, or by an old library, the next generation is new", "[transport]") {
  const bool is_old = GENERATE(false, true);
  Ranks ranks(2, is_old ? "fake_nccl_old" : "fake_nccl");
  ranks.options.may_shrink = is_old;
  require_open(ranks.open({0, 1}, 1));
  const auto inits = ranks.nccl().calls("init"), shrinks = ranks.nccl().calls("shrink");
  require_open(ranks.open({0, 1}, 2));
  CHECK(ranks.nccl().calls("init") == inits + 2);
  CHECK(ranks.nccl().calls("shrink") == shrinks);
  check_sums(ranks.sum({0, 1}, 5, 20000), expected_digest(5, 2, 9000));
  CHECK(ranks.live_soon(2) == 2);
}

TEST_CASE("other orders of ranks are no shrinking", "[transport]") {
  Ranks ranks(3);
  require_open(ranks.open({0, 1, 2}, 1));
  const auto inits = ranks.nccl().calls("init");
  ranks[1].group.reset();
  require_open(ranks.open({2, 0}, 2));
  CHECK(ranks.nccl().calls("init") == inits + 2);
  check_sums(ranks.sum({2, 0}, 5, 20000), expected_digest(5, 2, 9000));
}

TEST_CASE("the same ranks again open a new group, of which no shrinking is tried", "[transport]") {
  // NCCL refuses to shrink by no rank, which would cost an attempt.
  Ranks ranks(2);
  ranks.options.attempts_max = 1;
  require_open(ranks.open({0, 1}, 1));
  const auto inits = ranks.nccl().calls("init"), shrinks = ranks.nccl().calls("shrink");
  require_open(ranks.open({0, 1}, 2));
  CHECK(ranks.nccl().calls("shrink") == shrinks);
  CHECK(ranks.nccl().calls("init") == inits + 2);
  check_sums(ranks.sum({0, 1}, 5, 20000), expected_digest(5, 2, 9000));
  CHECK(ranks.live_soon(2) == 2);
  CHECK(ranks.nccl().first_misuse() == "");
}

TEST_CASE("a generation that is not later is refused", "[transport][errors]") {
  Ranks ranks(1);
  require_open(ranks.open({0}, 4));
  const auto refused = ranks.open({0}, 4).front();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK_THAT(refused.error().message, ContainsSubstring("of generation 4 cannot be rebuilt for"));
  CHECK(ranks.live_soon(0) == 0);
}

TEST_CASE("two ranks on one GPU are refused before NCCL is asked", "[transport][errors]") {
  Ranks ranks(2);
  ranks[1].stream = ranks.nccl().stream("gpu 0");
  const auto inits = ranks.nccl().calls("init");
  for (const auto& status : ranks.open({0, 1}, 1)) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Errc::invalid_argument);
    CHECK_THAT(status.error().message,
               ContainsSubstring("rank 1 and rank 0 share the device gpu 0"));
  }
  CHECK(ranks.nccl().calls("init") == inits);
}

TEST_CASE("ranks with different versions are refused", "[transport][errors]") {
  Ranks ranks(2);
  const FakeNccl old("fake_nccl_old");
  ranks[1].context = std::make_shared<NcclContext>(old.library(), short_limits());
  for (const auto& status : ranks.open({0, 1}, 1)) {
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message,
               ContainsSubstring("rank 1 has NCCL 2.18.5, but rank 0 has 2.28.9"));
  }
}

}  // namespace
}  // namespace troupe::transport::testing
