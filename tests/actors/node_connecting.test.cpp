// Connecting takes real time, so this runs on a real scheduler and waits.

#include "tests/torch_catch.hpp"

#include "actors/node/node_actor.hpp"

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/node/peers.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/transport/forwarding_transport.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// What connecting to a peer takes here.
constexpr auto kEach = 20ms;

class SlowTransport final : public transport::testing::ForwardingTransport {
 public:
  SlowTransport(std::unique_ptr<transport::Transport> inner,
                const std::atomic<std::int32_t>* unreached)
      : ForwardingTransport(std::move(inner)), unreached_(unreached) {}

  Status connect(transport::Peer peer, std::span<const std::byte> address) override {
    std::this_thread::sleep_for(kEach);
    if (peer == *unreached_) return Error{Errc::transport_failed, "no way leads there", {}, {}};
    return ForwardingTransport::connect(peer, address);
  }

 private:
  const std::atomic<std::int32_t>* unreached_;  ///< No way leads to this peer; -1: to each.
};

/// Node 2 of a job, without devices, whose peers are transports alone: they say nothing.
class Connecting {
 public:
  explicit Connecting(double silence_s = 60) {
    seen_.welcome = {NodeId{2}, "the job", 0.05, silence_s, 60};
    std::ofstream file(folder_ / "samples.json");
    file << R"([{"id": "s", "conversations": [{"from": "human", "value": "q"}, )"
         << R"({"from": "gpt", "value": "a"}]}])";
    file.close();
    job::Job job = engine::tiny_job();
    job.data.sources = {{"llava", folder_ / "samples.json", folder_.path()}};
    resources_.setup = engine::prepare(job).value();
    resources_.dataset =
        std::make_shared<const data::Dataset>(data::Dataset::open(resources_.setup.data).value());
    for (std::int32_t peer = 0; peer < 2; ++peer) peers_.push_back(transport(peer));
    head_ = system_.spawn(fake_supervisor, &seen_);
    NodeStart start{{"host", 7, -1, "1.0"}, "head:7000", {}, {}};
    start.open = [this](const NodeWelcome&) -> Result<NodeReady> {
      resources_.transport = std::make_unique<SlowTransport>(transport(2), &unreached_);
      return NodeReady{NodeId{2}, {1, 2}, {60, 7}};
    };
    start.on_end = [](JobEnd) {};
    node_ = system_.spawn(node, &resources_, head_, std::move(start));
    wait_until([this] { return seen_.readies == 1; });
  }

  ~Connecting() {
    caf::anon_send_exit(node_, caf::exit_reason::kill);
    caf::anon_send_exit(head_, caf::exit_reason::kill);
  }

  /// Takes up a layout with the first so many peers: what connecting to them took, as it says.
  double connect_ms(EpochNumber epoch, std::size_t peers) {
    take_up(layout(epoch, peers));
    return seen_.connect_ms;
  }

  /// Is to take up a layout with both peers, of which it does not reach the second: who misses
  /// whom, as it says.
  std::vector<std::pair<NodeId, NodeId>> missed(EpochNumber epoch) {
    unreached_ = 1;
    caf::send_as(head_, node_, apply_atom::value, layout(epoch, 2));
    wait_until([this] { return seen_.misses == 2; });
    unreached_ = -1;
    return seen_.ways;
  }

  /// The same of a layout with the first peer and the head, of which it does not reach the head.
  std::vector<std::pair<NodeId, NodeId>> missed_head(EpochNumber epoch) {
    Configuration next = layout(epoch, 1);
    next.nodes.push_back(introduce(head_place(), *peers_[1], {60, 7}));
    unreached_ = head_place().value;
    caf::send_as(head_, node_, apply_atom::value, std::move(next));
    wait_until([this] { return seen_.misses == 1; });
    unreached_ = -1;
    connect_ms(epoch + 1, 2);  // Behind all that it said of the layout before.
    return seen_.ways;
  }

  /// The head is one more peer behind all places.
  NodeId head_place() const { return NodeId{resources_.setup.job.cluster.nodes}; }

  /// Takes up a layout for which the first peer is to give it state. `is_late`: in its first step.
  void copy(EpochNumber epoch, bool is_late) {
    Configuration copying = layout(epoch, 1);
    copying.moves = {{{}, {NodeId{0}, 0}, {NodeId{2}, 0}}};
    if (is_late) copying.arriving.emplace_back();
    take_up(copying);
  }

  void settle(EpochNumber epoch) { caf::send_as(head_, node_, settle_atom::value, epoch); }
  void decide() { caf::send_as(head_, node_, engine::StepVerdict{}); }

  /// Waits, as of a head that lives, until the node says of this peer that it hears nothing; -1: of
  /// none any more.
  void wait_until_silent(std::int32_t peer) {
    wait_until([this, peer] {
      caf::send_as(head_, node_, alive_atom::value);
      return seen_.silent_peer == peer;
    });
  }

 private:
  struct Config : caf::actor_system_config {
    Config() { add_messages(*this); }
  };

  Configuration layout(EpochNumber epoch, std::size_t peers) const {
    Configuration made;
    made.epoch_number = epoch;
    for (std::size_t peer = 0; peer < peers; ++peer)
      made.nodes.push_back(introduce(NodeId{peer}, *peers_[peer], {60, 7}));
    return made;
  }

  void take_up(const Configuration& next) {
    const int before = seen_.fetched;
    caf::send_as(head_, node_, apply_atom::value, next);
    wait_until([this, before] { return seen_.fetched == before + 1; });
  }

  std::unique_ptr<transport::Transport> transport(std::int32_t self) {
    transport::TransportOptions options;
    options.hub = hub_;
    options.self = self;
    return transport::create_transport("inproc", options).value();
  }

  static void wait_until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;  // Only when a test fails.
    while (!is_so()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::sleep_for(5ms);
    }
  }

  testing::ScratchFolder folder_;
  std::shared_ptr<transport::InprocHub> hub_ = std::make_shared<transport::InprocHub>();
  std::vector<std::unique_ptr<transport::Transport>> peers_;
  std::atomic<std::int32_t> unreached_ = -1;
  SupervisorSeen seen_;
  NodeResources resources_;
  Config config_;
  caf::actor_system system_{config_};
  // After the system, which waits in its end until nobody refers to its actors any more.
  SupervisorActor head_;
  NodeActor node_;
};

TEST_CASE("a node tells how long connecting to its new peers took", "[actors]") {
  Connecting connecting;
  constexpr double kEachMs = std::chrono::duration<double, std::milli>(kEach).count();
  CHECK(connecting.connect_ms(3, 0) == 0);
  CHECK(connecting.connect_ms(4, 2) >= 2 * kEachMs);
  CHECK(connecting.connect_ms(5, 2) == 0);  // They are connected.
}

// Window: a peer is missed that the head reaches
TEST_CASE("a node that does not reach a peer says that each end misses the other, and tries again",
          "[actors][recovery]") {
  Connecting connecting;
  // Whoever is missed by more goes: node 1 must not, because node 2 asked first.
  CHECK((connecting.missed(3) ==
         std::vector<std::pair<NodeId, NodeId>>{{NodeId{2}, NodeId{1}}, {NodeId{1}, NodeId{2}}}));
  constexpr double kEachMs = std::chrono::duration<double, std::milli>(kEach).count();
  CHECK(connecting.connect_ms(4, 2) >= kEachMs);
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node that does not reach the head says so of itself", "[actors][recovery]") {
  Connecting connecting;
  const NodeId head = connecting.head_place();
  CHECK((connecting.missed_head(3) == std::vector<std::pair<NodeId, NodeId>>{{NodeId{2}, head}}));
}

TEST_CASE("a node tells of whom it hears nothing until all state of a layout has come",
          "[actors][recovery]") {
  constexpr double kSilence_s = 2;  // Half of it is told; all of it would cost it its head.
  Connecting copying(kSilence_s);
  SECTION("which is before it turns over") {
    copying.copy(3, false);
    copying.wait_until_silent(0);
    copying.settle(3);
    copying.wait_until_silent(-1);
  }
  SECTION("or once the step is decided in which it comes") {
    copying.copy(3, true);
    copying.settle(3);
    copying.wait_until_silent(0);
    copying.decide();
    copying.wait_until_silent(-1);
  }
}

}  // namespace
}  // namespace troupe::actors
