// Connecting takes real time, so this runs on a real scheduler and waits.

#include "tests/torch_catch.hpp"

#include "actors/node/node_actor.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/node/peers.hpp"
#include "engine/layout/choose_layout.hpp"
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

  void on_peer_failure(transport::PeerFailureHandler handler) override {
    fail_ = handler;
    ForwardingTransport::on_peer_failure(std::move(handler));
  }

  /// As where the connection to it never came up.
  void give_up(transport::Peer peer) {
    fail_(peer, Error{Errc::transport_failed, "out of reach", {}, {}}, false);
  }

 private:
  const std::atomic<std::int32_t>* unreached_;  ///< No way leads to this peer; -1: to each.
  transport::PeerFailureHandler fail_;
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
    for (std::int32_t peer = 0; peer < 2; ++peer) come(peer);
    head_ = system_.spawn(fake_supervisor, &seen_);
    NodeStart start{{"host", 7, -1, "1.0"}, "head:7000", {}, {}};
    start.open = [this](const NodeWelcome&) -> Result<NodeReady> {
      auto own = std::make_unique<SlowTransport>(transport(2), &unreached_);
      own_ = own.get();
      resources_.transport = std::move(own);
      return NodeReady{NodeId{2}, {1, 2}, {60, 7}};
    };
    start.on_end = [this](JobEnd) { has_ended_ = true; };
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
    unreached_ = head_place().value;
    caf::send_as(head_, node_, apply_atom::value, layout_with_head(epoch));
    wait_until([this] { return seen_.misses == 1; });
    unreached_ = -1;
    connect_ms(epoch + 1, 2);  // Behind all that it said of the layout before.
    return seen_.ways;
  }

  /// Is to take up a layout that gives it a device, of which it does not reach the second peer, and
  /// then one without that device: how many devices offer what they have of the model. Ends it.
  int offers_behind_a_failed_way(EpochNumber epoch) {
    Configuration failing = layout(epoch, 2);
    failing.plan = engine::make_parallel_plan(resources_.setup).value();
    unreached_ = 1;
    caf::send_as(head_, node_, apply_atom::value, failing);
    wait_until([this] { return seen_.misses == 2; });
    unreached_ = -1;
    caf::send_as(head_, node_, SaveOrder{1, 1, folder_.path().string(), {}});
    Configuration without = layout(epoch + 1, 2);
    without.plan = failing.plan;
    for (DeviceSlot& device : without.plan.devices)
      if (device.node == NodeId{2}) device = {NodeId{1}, 1};
    take_up(without);
    settle(without.epoch_number);
    caf::send_as(head_, node_, collect_atom::value, Collection::parameters);
    ++without.epoch_number;
    take_up(without);  // Behind all that was offered.
    const int offers = seen_.offers;
    caf::send_as(head_, node_, stop_atom::value, std::string("the test is over"), std::int32_t{0});
    wait_until([this] { return has_ended_.load(); });
    return offers;
  }

  /// The head is one more peer behind all places.
  NodeId head_place() const { return NodeId{resources_.setup.job.cluster.nodes}; }

  /// Takes up a layout with the first peer and the head, whose transport is the second's.
  void take_up_with_head(EpochNumber epoch) { take_up(layout_with_head(epoch)); }

  /// The way to the second peer breaks: waits until the node has told of it so many times.
  void break_way(std::size_t told) {
    peers_[1].reset();
    wait_until_missed(told);
  }

  /// The connection to this peer does not come up: waits as above.
  void give_up(NodeId peer, std::size_t told) {
    own_->give_up(peer.value);
    wait_until_missed(told);
  }

  /// Another process has the second peer's place.
  void replace_peer() { come(1); }

  void wait_until_missed(std::size_t told) {
    wait_until([this, told] { return seen_.misses == told; });
  }

  /// In which layouts the node has told of broken ways. Not while it may tell more.
  const std::vector<EpochNumber>& missed_in() const { return seen_.missed_in; }
  const std::vector<std::pair<NodeId, NodeId>>& ways() const { return seen_.ways; }
  /// Of how many of them it has said that they could not be made.
  std::size_t unmade() const { return seen_.unmade; }

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
    made.nodes.assign(readies_.begin(), readies_.begin() + static_cast<std::ptrdiff_t>(peers));
    return made;
  }

  Configuration layout_with_head(EpochNumber epoch) const {
    Configuration made = layout(epoch, 2);
    made.nodes.back().node = head_place();
    return made;
  }

  /// A process comes to this peer's place.
  void come(std::int32_t peer) {
    const auto place = static_cast<std::size_t>(peer);
    peers_[place] = transport(peer);
    readies_[place] = introduce(NodeId{peer}, *peers_[place], {60, 7});
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
  std::array<std::unique_ptr<transport::Transport>, 2> peers_;
  std::array<NodeReady, 2> readies_;  ///< As they came; a transport that is gone has no address.
  SlowTransport* own_ = nullptr;      ///< The node's.
  std::atomic<std::int32_t> unreached_ = -1;
  std::atomic<bool> has_ended_ = false;
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
  CHECK(connecting.unmade() == 2);  // Otherwise they would count in the next layout, too.
  constexpr double kEachMs = std::chrono::duration<double, std::milli>(kEach).count();
  CHECK(connecting.connect_ms(4, 2) >= kEachMs);
}

// Window: final tensors are offered
TEST_CASE("devices of a layout that does not come up offer what they have at the end",
          "[actors][recovery]") {
  Connecting connecting;
  CHECK(connecting.offers_behind_a_failed_way(3) == 1);  // The head counts on each of them.
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node that does not reach the head says so of itself", "[actors][recovery]") {
  Connecting connecting;
  const NodeId head = connecting.head_place();
  CHECK((connecting.missed_head(3) == std::vector<std::pair<NodeId, NodeId>>{{NodeId{2}, head}}));
  CHECK(connecting.unmade() == 1);
}

// Window: a peer is missed that the head reaches
TEST_CASE("a node says in each layout that its way to a peer is broken", "[actors][recovery]") {
  // No head may have been there to hear it, or one that had begun another layout.
  Connecting connecting;
  connecting.connect_ms(3, 2);
  connecting.break_way(1);
  connecting.connect_ms(4, 2);
  connecting.connect_ms(5, 2);
  CHECK(connecting.missed_in() == std::vector<EpochNumber>{3, 4, 5});
  const std::pair way{NodeId{2}, NodeId{1}};
  CHECK((connecting.ways() == std::vector<std::pair<NodeId, NodeId>>{way, way, way}));
  CHECK(connecting.unmade() == 0);

  SECTION("until the job does without that peer") {
    connecting.connect_ms(6, 1);
    connecting.connect_ms(7, 1);
  }
  SECTION("until another process has its place") {
    connecting.replace_peer();
    connecting.connect_ms(6, 2);
  }
  CHECK(connecting.missed_in().size() == 3);
}

// Window: a peer is missed that the head reaches
TEST_CASE("a node says in each layout that either end may miss the other where no way came up",
          "[actors][recovery]") {
  // Who is missed by more goes: node 1 must not, because this one was the first to say so.
  Connecting connecting;
  connecting.connect_ms(3, 2);
  connecting.give_up(NodeId{1}, 2);
  connecting.connect_ms(4, 2);
  CHECK(connecting.missed_in() == std::vector<EpochNumber>{3, 3, 4, 4});
  const std::pair way{NodeId{2}, NodeId{1}}, back{NodeId{1}, NodeId{2}};
  CHECK((connecting.ways() == std::vector<std::pair<NodeId, NodeId>>{way, back, way, back}));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node says that the head misses it where no way to the head came up",
          "[actors][recovery]") {
  Connecting connecting;
  connecting.take_up_with_head(3);
  connecting.give_up(connecting.head_place(), 1);
  connecting.settle(3);
  connecting.wait_until_missed(2);
  const std::pair way{connecting.head_place(), NodeId{2}};
  CHECK((connecting.ways() == std::vector<std::pair<NodeId, NodeId>>{way, way}));
}

// Window: a node and the head have no way for tensors between them
TEST_CASE("a node says of a broken way to the head once it has its state", "[actors][recovery]") {
  // Before that it would be done without, though nothing goes that way yet.
  Connecting connecting;
  connecting.take_up_with_head(3);
  connecting.break_way(1);
  connecting.take_up_with_head(4);
  CHECK(connecting.missed_in() == std::vector<EpochNumber>{3});
  connecting.settle(4);
  connecting.wait_until_missed(2);
  CHECK(connecting.missed_in() == std::vector<EpochNumber>{3, 4});
  CHECK((connecting.ways().back() == std::pair{NodeId{2}, connecting.head_place()}));
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
