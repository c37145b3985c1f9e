#include "scheduler/simulate/sum_choice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::text_llm;

/// Machines on which nothing speaks against NCCL.
CallFacts two_gpus() {
  CallFacts facts;
  facts.device = "cuda";
  facts.has_streams = true;
  facts.devices = facts.devices_there = 2;
  facts.over_host = true;
  return facts;
}

/// So many copies of one layer of 10 elements, each on a device of one node.
ParallelPlan copies(int count) {
  HandLayout layout;
  for (int device = 0; device < count; ++device)
    layout.pipelines.push_back({{0, device, {{"llm", {}}}}});
  return place_by_hand(text_llm(1), layout, {1, count}).value();
}

/// A byte a millisecond to other devices, and as fast to host memory and back.
PredictionOptions slow_links() {
  PredictionOptions prediction;
  prediction.dtype = Dtype::fp32;
  prediction.speeds.node.gigabytes_per_s = 1e-6;
  prediction.speeds.host.gigabytes_per_s = 1e-6;
  return prediction;
}

SumChoice choose(const CallFacts& facts, const PredictionOptions& prediction = slow_links(),
                 int count = 2) {
  return choose_sums(facts, copies(count), SumOrder::nccl, prediction).value();
}

TEST_CASE("sums go by messages where devices cannot call NCCL, and why is said", "[scheduler]") {
  const auto why = [](auto change) {
    CallFacts facts = two_gpus();
    change(facts);
    const SumChoice chosen = choose(facts);
    CHECK_FALSE(chosen.calls);
    CHECK(chosen.why == why_no_calls(facts));
    return chosen.why;
  };
  REQUIRE(why_no_calls(two_gpus()).empty());
  CHECK(why([](CallFacts& facts) { facts.has_streams = false; }) ==
        "NCCL adds up in the memory of GPUs, and the devices are cuda");
  CHECK(why([](CallFacts& facts) { facts.why_no_library = "it is too old"; }) == "it is too old");
  CHECK_THAT(why([](CallFacts& facts) { facts.nodes_elsewhere = 1; }),
             ContainsSubstring("1 node of other machines"));
  CHECK(why([](CallFacts& facts) { facts.devices_there = 1; }) ==
        "2 devices of the job would share 1 of this machine, and NCCL takes no two of them on one "
        "GPU");
}

TEST_CASE("a machine without the job's devices cannot call NCCL", "[scheduler]") {
  CallFacts facts = two_gpus();
  facts.devices_there = 0;
  CHECK(why_no_calls(facts) == "this machine has no cuda");
}

TEST_CASE("of several reasons against NCCL the first is said", "[scheduler]") {
  CallFacts facts = two_gpus();
  facts.devices_there = 1;
  facts.nodes_elsewhere = 3;
  CHECK_THAT(why_no_calls(facts), ContainsSubstring("3 nodes of other machines"));
  facts.why_no_library = "none is there";
  CHECK(why_no_calls(facts) == "none is there");
  facts.has_streams = false;
  CHECK_THAT(why_no_calls(facts), ContainsSubstring("the devices are cuda"));
}

TEST_CASE("a layout without copies has nothing that NCCL could add up", "[scheduler]") {
  const SumChoice chosen = choose(two_gpus(), slow_links(), 1);
  CHECK_FALSE(chosen.calls);
  CHECK(chosen.why == "no layer is on several devices, whole on each of them");
}

TEST_CASE("sums go the way that is predicted to take less time", "[scheduler]") {
  // Of 10 elements, too few for two chunks, one holder gives the other 40 bytes and gets as many
  // back: 80 ms, three times as long by host memory. NCCL's ring moves 40 in two halves.
  const SumChoice by_host = choose(two_gpus());
  CHECK(by_host.calls);
  CHECK(by_host.why ==
        "the sums of a step take 40 ms by NCCL and 240 ms by messages, as predicted");
  PredictionOptions narrow = slow_links();
  narrow.dtype = Dtype::bf16;  // Whose gradients are added up in fp32.
  CHECK(choose(two_gpus(), narrow).why == by_host.why);
  CallFacts direct = two_gpus();
  direct.over_host = false;
  CHECK_THAT(choose(direct).why, ContainsSubstring("80 ms by messages"));

  // Among four the ring waits for six latencies, messages for two. By messages three holders give
  // one all that they have, side by side, and it gives each of them the sum: 40 and 120 ms.
  PredictionOptions far = slow_links();
  far.speeds.node.latency_ms = 100;
  direct.devices = direct.devices_there = 4;
  const SumChoice chosen = choose(direct, far, 4);
  CHECK_FALSE(chosen.calls);
  CHECK(chosen.why ==
        "the sums of a step take 660 ms by NCCL and 360 ms by messages, as predicted");
}

TEST_CASE("sums between nodes take the network", "[scheduler]") {
  // As above: 40 bytes there and back, or in two halves; no two devices share a node.
  PredictionOptions prediction;
  prediction.speeds.node.gigabytes_per_s = 1e-9;
  prediction.speeds.network.gigabytes_per_s = 1e-6;
  CallFacts facts = two_gpus();
  facts.over_host = false;
  HandLayout layout;
  for (int node = 0; node < 2; ++node) layout.pipelines.push_back({{node, 0, {{"llm", {}}}}});
  const auto plan = place_by_hand(text_llm(1), layout, {2, 1}).value();
  const SumChoice chosen = choose_sums(facts, plan, SumOrder::nccl, prediction).value();
  CHECK(chosen.why == "the sums of a step take 40 ms by NCCL and 80 ms by messages, as predicted");
}

TEST_CASE("where both ways take as long, NCCL has the sums", "[scheduler]") {
  CHECK(choose(two_gpus(), PredictionOptions{}).calls);
}

TEST_CASE("in rank order a call is predicted as such", "[scheduler]") {
  // Each of four gives three others a quarter, and later its sum: 60 bytes in two steps.
  PredictionOptions far = slow_links();
  far.speeds.node.latency_ms = 100;
  CallFacts facts = two_gpus();
  facts.devices = facts.devices_there = 4;
  const auto chosen = choose_sums(facts, copies(4), SumOrder::nccl_chain, far).value();
  CHECK(chosen.calls);
  CHECK_THAT(chosen.why, ContainsSubstring("260 ms by NCCL"));
}

}  // namespace
}  // namespace troupe::scheduler
