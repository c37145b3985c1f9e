// Collectives: against a serial sum by hand, on every backend, whatever the order of arrival.

#include "transport/collectives/group.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/transport/checks.hpp"
#include "transport/collectives/rank_order_sum.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;
using Bf16 = std::uint16_t;

CollectiveCall call_of(const std::string& kind, std::vector<Peer> members) {
  CollectiveCall call;
  call.kind = kind;
  call.members = std::move(members);
  return call;
}

/// Runs the call at all ranks at once and returns the outcomes by rank.
std::vector<Outcome> run_all(Nodes& nodes, CollectiveCall call) {
  std::vector<int> running;
  for (std::size_t rank = 0; rank < call.members.size(); ++rank) {
    call.rank = static_cast<std::int32_t>(rank);
    running.push_back(nodes[call.members[rank]].collective(call));
  }
  std::vector<Outcome> outcomes;
  for (std::size_t rank = 0; rank < call.members.size(); ++rank) {
    outcomes.push_back(nodes[call.members[rank]].wait(running[rank], call.deadline_ms + 5000));
  }
  return outcomes;
}

template <class T>
std::vector<std::byte> serial_sum(const CollectiveCall& call) {
  std::vector<T> sum(call.count);
  for (std::size_t rank = 0; rank < call.members.size(); ++rank) {
    const auto bytes =
        rank_values(call.seed, static_cast<std::int32_t>(rank), call.count, call.scalar);
    for (std::size_t i = 0; i < call.count; ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      sum[i] = rank == 0 ? value : static_cast<T>(sum[i] + value);
    }
  }
  const auto* begin = reinterpret_cast<const std::byte*>(sum.data());
  return {begin, begin + call.count * sizeof(T)};
}

std::vector<std::byte> expected_sum(const CollectiveCall& call) {
  if (call.scalar == Scalar::fp32) return serial_sum<float>(call);
  if (call.scalar == Scalar::fp64) return serial_sum<double>(call);
  return serial_sum<std::uint64_t>(call);
}

TEST_CASE("sums run in rank order", "[transport]") {
  // By hand: (1e8 + 1) - 1e8 = 0 in fp32, since 1e8 + 1 rounds to 1e8; (1e8 - 1e8) + 1 = 1.
  const float a = 1e8f, b = 1, c = -1e8f;
  float sum = 0;
  const void* one_order[] = {&a, &b, &c};
  sum_in_rank_order(one_order, 1, Scalar::fp32, &sum);
  CHECK(sum == 0);
  const void* other_order[] = {&a, &c, &b};
  sum_in_rank_order(other_order, 1, Scalar::fp32, &sum);
  CHECK(sum == 1);
}

TEST_CASE("bf16 is summed in fp32 and rounded once, to nearest even", "[transport]") {
  // bf16 has 8 significant bits. 256 + 1 + 1 = 258: adding in bf16 would give 256 + 1 -> 256 (a
  // tie, to even) twice. Summed in fp32 it is 258 = 0x4381, which bf16 holds exactly.
  const Bf16 large = 0x4380, one = 0x3F80;
  Bf16 sum = 0;
  const void* inputs[] = {&large, &one, &one};
  sum_in_rank_order(inputs, 1, Scalar::bf16, &sum);
  CHECK(sum == 0x4381);
  // 257 lies between 256 (0x4380) and 258 (0x4381): a tie, the even one is 256. 259 is between
  // 258 and 260 (0x4382): 260 is even.
  sum_in_rank_order(std::span(inputs, 2), 1, Scalar::bf16, &sum);
  CHECK(sum == 0x4380);
  const Bf16 odd = 0x4381;
  const void* upper[] = {&odd, &one};
  sum_in_rank_order(upper, 1, Scalar::bf16, &sum);
  CHECK(sum == 0x4382);
  // NaN with all its payload in the lower half of fp32 must not round to infinity.
  const Bf16 infinity = 0x7F80, minus_infinity = 0xFF80;
  const void* undefined[] = {&infinity, &minus_infinity};
  sum_in_rank_order(undefined, 1, Scalar::bf16, &sum);
  CHECK(std::isnan(std::bit_cast<float>(std::uint32_t{sum} << 16)));
}

TEST_CASE("int64 sums are exact and wrap", "[transport]") {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max(), one = 1;
  std::int64_t sum = 0;
  const void* inputs[] = {&large, &one};
  sum_in_rank_order(inputs, 1, Scalar::int64, &sum);
  CHECK(sum == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("all-reduce gives every rank the serial sum, to the bit", "[transport][property]") {
  const Backend& backend = each_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 3);
  nodes.connect_all();
  auto call = call_of("all_reduce", {0, 1, 2});
  for (const auto scalar : {Scalar::fp32, Scalar::fp64, Scalar::int64}) {
    for (const std::size_t count : {0u, 1u, 5000u, 60001u}) {
      CAPTURE(static_cast<int>(scalar), count);
      call.scalar = scalar;
      call.count = count;
      ++call.seed;
      const auto expected = expected_sum(call);
      for (const auto& outcome : run_all(nodes, call)) {
        INFO(outcome.message);
        REQUIRE(outcome.ok);
        CHECK(outcome.digest == digest_of(expected.data(), expected.size()));
      }
    }
  }
}

TEST_CASE("the order of arrival does not change a bit", "[transport][property]") {
  const Backend& backend = each_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 3);
  nodes.connect_all();
  const auto* kind =
      GENERATE("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast");
  auto call = call_of(kind, {2, 0, 1});  // Ranks need not follow node ids.
  call.count = 30011;
  call.scalar = Scalar::bf16;
  const auto plain = run_all(nodes, call);
  for (std::uint32_t repeat = 2; repeat < 6; ++repeat) {
    call.group_id = repeat;
    call.delayed = true;
    const auto delayed = run_all(nodes, call);
    for (std::size_t rank = 0; rank < plain.size(); ++rank) {
      INFO(plain[rank].message << delayed[rank].message);
      REQUIRE(plain[rank].ok);
      REQUIRE(delayed[rank].ok);
      CHECK(plain[rank].digest == delayed[rank].digest);
    }
  }
}

TEST_CASE("gathers and exchanges put every piece in its place", "[transport]") {
  const Backend& backend = each_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 3);
  nodes.connect_all();
  const std::size_t count = GENERATE(13u, 200000u);
  const std::uint64_t seed = GENERATE(1u, 2u);
  auto call = call_of("all_gather", {0, 1, 2});
  call.count = count;
  call.seed = seed;
  std::vector<std::byte> all;
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    const auto piece =
        pattern(seed + static_cast<std::uint64_t>(rank), piece_bytes(seed, rank, 0, count));
    all.insert(all.end(), piece.begin(), piece.end());
  }
  for (const auto& outcome : run_all(nodes, call)) {
    INFO(outcome.message);
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == digest_of(all.data(), all.size()));
  }
  call.kind = "all_to_all";
  const auto outcomes = run_all(nodes, call);
  for (std::int32_t to = 0; to < 3; ++to) {
    std::vector<std::byte> expected;
    for (std::int32_t from = 0; from < 3; ++from) {
      const auto piece = pattern(seed + static_cast<std::uint64_t>(100 * from + to),
                                 piece_bytes(seed, from, to, count));
      expected.insert(expected.end(), piece.begin(), piece.end());
    }
    REQUIRE(outcomes[static_cast<std::size_t>(to)].ok);
    CHECK(outcomes[static_cast<std::size_t>(to)].digest ==
          digest_of(expected.data(), expected.size()));
  }
}

TEST_CASE("two ranks may share a node", "[transport]") {
  const Backend& backend = each_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 2);
  nodes.connect_all();
  auto call = call_of("all_reduce", {0, 1, 0, 1});
  call.count = 20000;
  call.scalar = Scalar::fp64;
  const auto expected = expected_sum(call);
  for (const auto& outcome : run_all(nodes, call)) {
    REQUIRE(outcome.ok);
    CHECK(outcome.digest == digest_of(expected.data(), expected.size()));
  }
  call.kind = "barrier";
  for (const auto& outcome : run_all(nodes, call)) CHECK(outcome.ok);
}

TEST_CASE("a group of one needs nobody", "[transport]") {
  const Backend& backend = each_backend();
  Nodes nodes(backend, 1);
  for (const auto* kind :
       {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier"}) {
    auto call = call_of(kind, {0});
    call.count = 1000;
    CHECK(run_all(nodes, call)[0].ok);
  }
}

TEST_CASE("a barrier holds until the last rank has come", "[transport]") {
  const Backend& backend = each_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 3);
  nodes.connect_all();
  auto call = call_of("barrier", {0, 1, 2});
  call.deadline_ms = 100;
  std::vector<int> running;
  for (const int rank : {0, 1}) {
    call.rank = rank;
    running.push_back(nodes[rank].collective(call));
  }
  for (const int rank : {0, 1}) {
    const auto outcome = nodes[rank].wait(running[static_cast<std::size_t>(rank)], 5000);
    CHECK(outcome.code == Errc::timed_out);
    CHECK_THAT(outcome.message, ContainsSubstring("rank 2 (node 2)"));
    CHECK_THAT(outcome.message, !ContainsSubstring("rank 0"));
  }
}

TEST_CASE("a collective fails at every rank when a member dies", "[transport][errors]") {
  const Backend& backend = each_backend();
  CAPTURE(to_string(backend));
  const auto* kind = GENERATE("all_reduce", "all_gather", "barrier");
  Nodes nodes(backend, 3);
  nodes.connect_all();
  auto call = call_of(kind, {0, 1, 2});
  call.count = 100000;
  call.seed = 3;  // With this seed rank 2 has a piece to send in each of them.
  call.deadline_ms = 8000;
  std::vector<int> running;
  for (const int rank : {0, 1}) {
    call.rank = rank;
    running.push_back(nodes[rank].collective(call));
  }
  const auto killed = std::chrono::steady_clock::now();
  nodes[2].vanish();
  for (const int rank : {0, 1}) {
    const auto outcome = nodes[rank].wait(running[static_cast<std::size_t>(rank)], 9000);
    CHECK(to_string(outcome.code) == to_string(Errc::transport_failed));
    CHECK_THAT(outcome.message, ContainsSubstring("rank 2: peer 2"));
    // The group stays broken, and says why, even for what needs nobody else.
    call.rank = rank;
    call.count = 0;
    const auto again = nodes[rank].wait(nodes[rank].collective(call), 9000);
    CHECK(again.message == outcome.message);
  }
  CHECK(std::chrono::steady_clock::now() - killed < std::chrono::milliseconds(3000));
}

TEST_CASE("groups refuse what cannot be one", "[transport][errors]") {
  TransportOptions options;
  options.self = 4;
  const auto transport = std::move(create_transport("inproc", options)).value();
  const auto code = [&](GroupOptions wrong) {
    const auto group = Group::create(*transport, std::move(wrong));
    return group.ok() ? Errc::internal : group.error().code;
  };
  CHECK(code({{}, 0, 1, 1}) == Errc::invalid_argument);
  CHECK(code({{4, 5}, 2, 1, 1}) == Errc::invalid_argument);
  CHECK(code({{4, 5}, -1, 1, 1}) == Errc::invalid_argument);
  CHECK(code({{4, 5}, 1, 1, 1}) == Errc::invalid_argument);  // Rank 1 is node 5.
  CHECK(code({{4, 5}, 0, 1, 1 << 24}) == Errc::invalid_argument);
  CHECK(code({std::vector<Peer>((1 << 16) + 1, 4), 0, 1, 1}) == Errc::invalid_argument);
}

TEST_CASE("collectives refuse sizes that do not fit, and stay usable", "[transport][errors]") {
  TransportOptions options;
  options.self = 0;
  const auto transport = std::move(create_transport("inproc", options)).value();
  auto group = std::move(Group::create(*transport, {{0}, 0, 1, 1})).value();
  const auto deadline = within(std::chrono::seconds(5));
  alignas(8) std::byte bytes[64] = {};
  const std::size_t eight[] = {8}, two_ranks[] = {4, 4};
  const auto refused = [](const Status& status) {
    return !status.ok() && status.error().code == Errc::invalid_argument;
  };
  CHECK(refused(group.all_reduce({bytes, 6}, Scalar::fp32, deadline)));
  CHECK(refused(group.all_reduce({bytes + 1, 8}, Scalar::fp32, deadline)));
  CHECK(refused(group.reduce_scatter({bytes, 32}, two_ranks, Scalar::fp32, {bytes, 4}, deadline)));
  CHECK(refused(group.reduce_scatter({bytes, 16}, eight, Scalar::fp32, {bytes, 32}, deadline)));
  CHECK(refused(group.reduce_scatter({bytes, 32}, eight, Scalar::fp32, {bytes, 16}, deadline)));
  CHECK(refused(group.all_gather({bytes, 8}, two_ranks, {bytes, 8}, deadline)));
  CHECK(refused(group.all_gather({bytes, 4}, eight, {bytes, 8}, deadline)));
  CHECK(refused(group.all_gather({bytes, 8}, eight, {bytes, 4}, deadline)));
  CHECK(refused(group.all_to_all({bytes, 8}, two_ranks, {bytes, 8}, eight, deadline)));
  CHECK(refused(group.all_to_all({bytes, 4}, eight, {bytes, 8}, eight, deadline)));
  CHECK(refused(group.all_to_all({bytes, 8}, eight, {bytes, 4}, eight, deadline)));
  CHECK(refused(group.broadcast({bytes, 8}, 1, deadline)));
  CHECK(group.barrier(deadline).ok());
}

}  // namespace
}  // namespace troupe::transport::testing
