// Real executors, and a way between two nodes on which everything is lost: what devices say of
// their waits tells that way from all others.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/coordination/silent_ways.hpp"
#include "tests/engine/tiny_cluster.hpp"
#include "tests/transport/forwarding_transport.hpp"

namespace troupe::actors {
namespace {

constexpr transport::Peer kNobody = -1;

/// What is lost: all that one node sends to another one, or the message of this number alone.
struct Loss {
  transport::Peer from = kNobody;
  transport::Peer to = kNobody;
  std::optional<int> which = std::nullopt;
};

/// Sends that are lost end as if they had gone out, and never arrive.
class SwallowingTransport final : public transport::testing::ForwardingTransport {
 public:
  SwallowingTransport(std::unique_ptr<transport::Transport> inner, Loss loss)
      : ForwardingTransport(std::move(inner)), loss_(loss) {}

  transport::Operation send(transport::Peer peer, const transport::Tag& tag,
                            transport::ConstBuffer data) override {
    if (peer == loss_.to && (!loss_.which || sent_++ == *loss_.which))
      return transport::Operation(Status(Done{}));
    return ForwardingTransport::send(peer, tag, std::move(data));
  }

 private:
  Loss loss_;
  int sent_ = 0;
};

/// Four nodes in one step, with a loss.
struct LosingCluster {
  LosingCluster(const job::Job& job, Loss loss)
      : cluster(
            job, {},
            [this](engine::ExecutorOptions& options) {
              auto& hand = hands[options.device];
              hand = std::make_unique<engine::WorkInHand>();
              options.in_hand = hand.get();
            },
            {},
            [loss](std::unique_ptr<transport::Transport>& own) {
              if (own->self() == loss.from)
                own = std::make_unique<SwallowingTransport>(std::move(own), loss);
            }) {}

  /// The first step, as far as it comes; returns whether all are PREPARED.
  bool run() {
    constexpr int kRounds = 1000;  // Far more than there are actions to wait for.
    cluster.begin(0);
    bool is_prepared = false;
    for (int round = 0; round < kRounds && !is_prepared; ++round) {
      is_prepared = true;
      for (std::size_t device = 0; device < 4; ++device)
        is_prepared &= cluster.executor(device).advance().value() == engine::Progress::committing;
    }
    return is_prepared;
  }

  /// What is found to be silent by what all of them wait for.
  std::vector<SilentWay> ways() {
    engine::SampleStore store;
    const auto planned = engine::plan_tiny_batch(cluster.setup(), cluster.plan(), store).value();
    return silent_ways(cluster.plan(), planned.iteration, waits(), 5);
  }

  /// What all devices wait for, each for ten seconds.
  std::vector<engine::LongWait> waits() const {
    std::vector<engine::LongWait> waits;
    for (const auto& [device, hand] : hands)
      if (auto present = hand->wait()) {
        waits.push_back(std::move(present->wait));
        waits.back().seconds = 10;
      }
    return waits;
  }

  std::map<DeviceId, std::unique_ptr<engine::WorkInHand>> hands;  // Before who refers to them.
  engine::Cluster cluster;
};

/// Pipelines, a chain of stages, sums over four holders, and rows that pass through a device.
job::Job job_of(int kind) {
  job::Job job = engine::tiny_job();
  auto& layout = job.parallel.layout;
  if (kind == 1)
    layout.pipelines = {{{0, 0, {{"vision", {}}}},
                         {1, 0, {{"llm", LayerRange{0, 1}}}},
                         {2, 0, {{"llm", LayerRange{1, 2}}}},
                         {3, 0, {{"llm", LayerRange{2, 4}}}}}};
  if (kind == 2) {
    layout.pipelines.clear();
    for (int node = 0; node < 4; ++node)
      layout.pipelines.push_back({{node, 0, {{"vision", {}}, {"llm", {}}}}});
  }
  if (kind == 3) {
    layout = {};
    for (int node = 0; node < 3; ++node)
      layout.replicas.push_back({{"vision"}, {{node, 0, {{"vision", {}}}}}});
    layout.replicas.push_back({{"llm"}, {{3, 0, {{"llm", {}}}}}});
    job.train.microbatches = 3;
    job.scheduler.boundary = "gather-scatter";
  }
  return job;
}

TEST_CASE("of all that devices wait for the way is found on which everything is lost",
          "[actors][recovery]") {
  const int kind = GENERATE(0, 1, 2, 3);
  const int from = GENERATE(0, 1, 2, 3), to = GENERATE(0, 1, 2, 3);
  if (from == to) return;
  CAPTURE(kind, from, to);
  LosingCluster losing(job_of(kind), {from, to});
  const bool is_prepared = losing.run();
  CHECK(losing.waits().size() == 4);
  if (is_prepared) {  // They say nothing to each other.
    CHECK(losing.ways().empty());
  } else {
    CHECK((losing.ways() == std::vector{SilentWay{NodeId{from}, NodeId{to}, 10}}));
  }
}

TEST_CASE("the way is found on which a single message is lost, whatever it carries",
          "[actors][recovery]") {
  const int kind = GENERATE(0, 3);
  const int from = GENERATE(0, 1, 2, 3), to = GENERATE(0, 1, 2, 3);
  if (from == to) return;
  for (int which = 0;; ++which) {
    CAPTURE(kind, from, to, which);
    REQUIRE(which < 1000);
    LosingCluster losing(job_of(kind), {from, to, which});
    if (losing.run()) break;  // There are no more.
    CHECK((losing.ways() == std::vector{SilentWay{NodeId{from}, NodeId{to}, 10}}));
  }
}

TEST_CASE("a device waits for nobody while work of its own is under way", "[actors][recovery]") {
  job::Job job = engine::tiny_job();
  job.debug.delayed_device_ms = 1000;
  LosingCluster losing(job, {});
  losing.cluster.begin(0);
  REQUIRE(losing.cluster.executor(1).advance().ok());
  CHECK_FALSE(losing.hands.at(DeviceId{1})->wait());
  for (std::size_t device = 0; device < 4; ++device)
    REQUIRE(losing.cluster.executor(device).abandon().ok());
}

TEST_CASE("devices that are PREPARED wait for the word, and then for nothing",
          "[actors][recovery]") {
  LosingCluster losing(engine::tiny_job(), {});
  REQUIRE(losing.run());
  const auto waits = losing.waits();
  REQUIRE(waits.size() == 4);
  for (const engine::LongWait& wait : waits) {
    CHECK(wait.awaited.empty());
    CHECK(wait.step == 1);
    CHECK(wait.epoch_number == 1);
  }
  losing.cluster.decide(losing.cluster.outcome().decision);
  REQUIRE(losing.cluster.advance_to(engine::Progress::finished).ok());
  CHECK(losing.waits().empty());
}

}  // namespace
}  // namespace troupe::actors
