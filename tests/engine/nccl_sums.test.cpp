// Sums of gradients by calls to the fake NCCL: devices of the tiny job in one process.

#include "tests/engine/calling_devices.hpp"
#include "tests/engine/tiny_cluster.hpp"

#include <ATen/ops/ones.h>

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/call_facts.hpp"
#include "engine/execution/failed_device.hpp"
#include "engine/execution/memory_promise.hpp"
#include "engine/execution/nccl_sums.hpp"
#include "engine/execution/sum_calls.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "transport/nccl/nccl_streams.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

/// A cluster whose sums are calls, in this order where the plan has any.
struct SumsCluster : CallingCluster<NcclSums> {
  explicit SumsCluster(SumOrder order, std::chrono::milliseconds limit = std::chrono::seconds(20),
                       const std::vector<Standby>& standbys = {},
                       std::chrono::milliseconds opening = kOpening,
                       std::function<StageProgram*(StageId, ModelStage&)> program = {})
      : CallingCluster(
            limit, [](ExecutorOptions& options, NcclSums& sums) { options.calls = &sums; },
            [&](ParallelPlan made) {
              made.model.sums = order;
              made.standbys = standbys;
              scheduler::complete(made);
              return made;
            },
            opening, std::move(program)) {}
};

/// Sums that the device has no room for.
class RoomlessSums final : public SumCalls {
 public:
  void enter(GroupId /*group*/, at::Tensor /*gradients*/, std::function<void()> on_done) override {
    on_done();
  }
  Result<bool> has_ended(GroupId /*group*/) override {
    return Error{Errc::infeasible, "there is no room: no memory", {}, {}};
  }
  void give_up() override {}
};

/// Throws where it is asked for what it keeps by the thread that made it, and not in work of its
/// device.
class DeviceStage final : public HookedStage {
 public:
  explicit DeviceStage(StageProgram& inner) : HookedStage(inner, [] {}) {}

  GroupState& state(GroupId group, LayerId layer) override {
    if (std::this_thread::get_id() == thread_) throw std::runtime_error("asked beside work");
    return HookedStage::state(group, layer);
  }

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
};

/// Devices 0 and 2, which share the encoder, open their sums; until one of them has called NCCL.
std::vector<std::future<Status>> begin_opening(const SumsCluster& calls, FakeCalls& fake) {
  const int none = (*fake).calls("group_end");
  std::vector<std::future<Status>> running;
  for (const std::size_t d : {std::size_t{0}, std::size_t{2}})
    running.push_back(std::async(std::launch::async, [&calls, d] {
      return calls.of_device[d]->open(calls.plan, DeviceId{d}, 1);
    }));
  const auto soon = transport::within(std::chrono::seconds(20));
  while ((*fake).calls("group_end") == none && std::chrono::steady_clock::now() < soon)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return running;
}

TEST_CASE("calls to NCCL in the chain's order give the bits of messages", "[engine]") {
  FakeCalls fake;
  Cluster messages(late_job());
  SumsCluster calls(SumOrder::nccl_chain);
  REQUIRE(std::ranges::any_of(calls.plan.groups, [](const ParameterGroup& group) {
    return group.order == SumOrder::nccl_chain;
  }));
  calls.require_open(1);
  for (std::int64_t step = 0; step < 3; ++step) {
    messages.train(step);
    calls.cluster->train(step);
  }
  CHECK(are_equal(messages.parameters(), calls.cluster->parameters()));
  CHECK((*fake).calls("send") > 0);
  CHECK((*fake).calls("all_reduce") == 0);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("a device without room for a sum says what its plan gives it", "[engine][errors]") {
  FakeCalls fake;
  const MemoryPromise promise{Bytes{1'000'000'000'000}, Bytes{600'000'000}};
  RoomlessSums roomless;
  const CallingCluster<NcclSums> calls(
      std::chrono::seconds(20),
      [&](ExecutorOptions& options, NcclSums&) {
        options.calls = &roomless;
        options.memory = promise;
      },
      [](ParallelPlan made) {
        made.model.sums = SumOrder::nccl_chain;
        scheduler::complete(made);
        return made;
      });
  calls.cluster->begin(0);
  const Status ended = calls.cluster->advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::infeasible);
  CHECK(ended.error().message.starts_with("there is no room: no memory" + promise_words(promise) +
                                          ", in step 1 on device "));
  CHECK(ended.error().fix == memory_fix(promise, false));
}

TEST_CASE("in NCCL's own order all holders agree", "[engine]") {
  FakeCalls fake;
  SumsCluster calls(SumOrder::nccl);
  calls.require_open(1);
  const int before = (*fake).calls("all_reduce");
  calls.cluster->train(0);
  CHECK((*fake).calls("all_reduce") > before);
  std::map<GroupId, std::uint64_t> hashes;
  for (std::size_t device = 0; device < 4; ++device)
    for (const auto& holder : calls.cluster->executor(device).take_report().hashes)
      CHECK(hashes.emplace(holder.group, holder.hash).first->second == holder.hash);
  CHECK(hashes.size() == calls.plan.groups.size());
}

TEST_CASE("what enters a call is asked of a stage in work of its device", "[engine][errors]") {
  FakeCalls fake;
  std::vector<std::unique_ptr<DeviceStage>> stages;  // The cluster tells them when it ends.
  SumsCluster calls(SumOrder::nccl, std::chrono::seconds(20), {}, kOpening,
                    [&](StageId, ModelStage& inner) -> StageProgram* {
                      return stages.emplace_back(std::make_unique<DeviceStage>(inner)).get();
                    });
  calls.require_open(1);
  const int before = (*fake).calls("all_reduce");
  calls.cluster->train(0);
  CHECK((*fake).calls("all_reduce") > before);
}

TEST_CASE("who is on standby adds nothing to a call and gets its sum", "[engine]") {
  FakeCalls fake;
  Cluster messages(late_job());
  // Device 1 has the llm alone: it stands by for the vision encoder's first layer.
  SumsCluster calls(SumOrder::nccl_chain, std::chrono::seconds(20),
                    {{DeviceId{1}, {ModuleId{0}, 0}, {}}});
  const auto kept = std::ranges::find_if(
      calls.plan.groups, [](const ParameterGroup& group) { return group.standbys == 1; });
  REQUIRE(kept != calls.plan.groups.end());
  REQUIRE(is_by_nccl(kept->order));
  const GroupId id{kept - calls.plan.groups.begin()};
  calls.require_open(1);
  for (std::int64_t step = 0; step < 3; ++step) {
    messages.train(step);
    calls.cluster->train(step);
  }
  CHECK(are_equal(messages.parameters(), calls.cluster->parameters()));
  CHECK(calls.cluster->standby(1).at(id).hash() == calls.cluster->state(id, 0).hash());
}

TEST_CASE("a call that hangs ends by its deadline with the group's name", "[engine][errors]") {
  FakeCalls fake;
  SumsCluster calls(SumOrder::nccl, std::chrono::milliseconds(300));
  calls.require_open(1);
  (*fake).script("stall@launch");
  calls.cluster->begin(0);
  const Status ended = calls.cluster->advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::timed_out);
  CHECK_THAT(ended.error().message, ContainsSubstring("NCCL group 'gradients of "));
  CHECK_THAT(ended.error().message, ContainsSubstring("of generation 1, rank "));

  // Who says so first counts as lost, by no fault of what it computed.
  const auto lost = calls.take_thrown();
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].by_device);
  CHECK((lost[0].error == ended.error()));

  // The next generation opens its groups anew, and the step is trained after all.
  calls.begin_anew(fake, 2);
  calls.cluster->train(0);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("a lost node ends the calls in which it has a part, and no others", "[engine][errors]") {
  FakeCalls fake;
  SumsCluster calls(SumOrder::nccl_chain);
  calls.require_open(1);
  // Devices 0 and 2 share the encoder; 1 and 3 some of the llm.
  const auto group_of = [&](std::vector<DeviceId> holders) {
    for (std::size_t g = 0; g < calls.plan.groups.size(); ++g)
      if (calls.plan.groups[g].holders == holders) return GroupId{g};
    return GroupId{};
  };
  const GroupId encoder = group_of({DeviceId{0}, DeviceId{2}});
  const GroupId llm = group_of({DeviceId{1}, DeviceId{3}});
  REQUIRE(encoder.valid());
  REQUIRE(llm.valid());
  const auto tensor = [] { return at::ones({100}, at::kDouble); };
  std::promise<void> woken;
  calls.of_device[0]->enter(encoder, tensor(), [&] { woken.set_value(); });
  calls.of_device[1]->enter(llm, tensor(), [] {});
  CHECK_FALSE(calls.of_device[0]->has_ended(encoder).value());
  for (std::size_t d = 0; d < 2; ++d)
    calls.of_device[d]->lose(2, {Errc::transport_failed, "its process ended", {}, {}});
  woken.get_future().wait();
  const auto ended = calls.of_device[0]->has_ended(encoder);
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == Errc::transport_failed);
  CHECK_THAT(ended.error().message, ContainsSubstring("has lost rank 1: its process ended"));
  CHECK_FALSE(calls.of_device[1]->has_ended(llm).value());
}

TEST_CASE("the sums of a layout that is open connect nobody", "[engine]") {
  FakeCalls fake;
  const auto order = GENERATE(SumOrder::nccl_chain, SumOrder::nccl);
  CAPTURE(to_string(order));
  SumsCluster calls(order);
  const int none = (*fake).calls("connect");
  calls.require_open(1);
  const int open = (*fake).calls("connect");
  CHECK(open > none);
  calls.cluster->train(0);
  CHECK((*fake).calls("connect") == open);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("a node that is lost while sums connect ends the opening at once", "[engine][errors]") {
  FakeCalls fake;
  SumsCluster calls(SumOrder::nccl_chain);
  (*fake).script("stall@group_end:0");
  auto running = begin_opening(calls, fake);
  calls.of_device[0]->lose(2, {Errc::transport_failed, "its process ended", {}, {}});
  calls.of_device[2]->lose(0, {Errc::transport_failed, "its process ended", {}, {}});
  for (const int rank : {0, 1}) {
    const Status ended = running[static_cast<std::size_t>(rank)].get();
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.error().code == Errc::transport_failed);
    CHECK_THAT(ended.error().message, ContainsSubstring("the NCCL group 'gradients of "));
    CHECK_THAT(
        ended.error().message,
        ContainsSubstring("has lost rank " + std::to_string(1 - rank) + ": its process ended"));
  }
  (*fake).script("");
  calls.require_open(2);
  CHECK((*fake).first_misuse() == "");
}

TEST_CASE("sums that do not connect end the opening in its time, with the group's name",
          "[engine][errors]") {
  FakeCalls fake;
  SumsCluster calls(SumOrder::nccl_chain, std::chrono::seconds(20), {}, std::chrono::seconds(6));
  (*fake).script("stall@group_end:0");
  const auto begun = std::chrono::steady_clock::now();
  auto running = begin_opening(calls, fake);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    const Status ended = running[rank].get();
    REQUIRE_FALSE(ended.ok());
    CHECK_THAT(ended.error().message, ContainsSubstring("NCCL group 'gradients of "));
    CHECK_THAT(ended.error().message, ContainsSubstring("rank 0 says: "));
    CHECK_THAT(ended.error().message, ContainsSubstring("warm-up has not ended after"));
    // Nobody knows whose NCCL it is: one node is done without, by no fault of a step, and not all.
    CHECK(ended.error().code == (rank == 0 ? Errc::timed_out : Errc::transport_failed));
    CHECK(failed_opening(ended.error(), c10::kCPU, 1).has_value() == (rank == 0));
  }
  // A third of the time for an opening, and what a loaded machine needs besides.
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
  (*fake).script("");
}

TEST_CASE("without GPUs or NCCL the fix says what to do instead", "[engine][errors]") {
  FakeCalls fake;
  SumsCluster calls(SumOrder::nccl);
  transport::register_nccl_streams("cpu", {});
  for (const Status& status : calls.open(1)) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Errc::unavailable);
    CHECK(status.error().where == "cluster.sums");
    CHECK_THAT(status.error().fix, ContainsSubstring("cluster.sums = \"messages\""));
  }
  setenv("TROUPE_NCCL_LIBRARY", "/nowhere/libnccl.so", 1);
  SumsCluster without(SumOrder::nccl);
  const auto opened = without.open(1);
  CHECK(opened.front().error().code == Errc::unavailable);
  CHECK(opened.front().error().where == "cluster.sums");
}

TEST_CASE("a layout without calls needs no NCCL", "[engine]") {
  SumsCluster calls(SumOrder::chain);
  setenv("TROUPE_NCCL_LIBRARY", "/nowhere/libnccl.so", 1);
  calls.require_open(1);
  unsetenv("TROUPE_NCCL_LIBRARY");
}

TEST_CASE("who can call NCCL is known before a job begins", "[engine]") {
  job::Cluster cluster = tiny_job().cluster;
  CHECK_THAT(scheduler::why_no_calls(call_facts(cluster)),
             ContainsSubstring("the devices are cpu"));
  FakeCalls fake;
  CHECK(scheduler::why_no_calls(call_facts(cluster)).empty());
  CHECK(call_facts(cluster).devices == 4);
  CHECK_FALSE(call_facts(cluster).over_host);
  cluster.nodes = 6;  // Two of them on other machines.
  CHECK(call_facts(cluster).nodes_elsewhere == 2);
  setenv("TROUPE_NCCL_LIBRARY", "/nowhere/libnccl.so", 1);
  CHECK_THAT(scheduler::why_no_calls(call_facts(cluster)),
             ContainsSubstring("'/nowhere/libnccl.so' cannot be loaded"));
  cluster.device = "abacus";
  CHECK_THAT(scheduler::why_no_calls(call_facts(cluster)),
             ContainsSubstring("the devices are abacus"));
}

}  // namespace
}  // namespace troupe::engine
