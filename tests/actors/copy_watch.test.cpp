#include "actors/node/copy_watch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/transport/forwarding_transport.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};
constexpr Duration kInterval = 1s;

/// What it sends to nodes in `cut` ends as if it had gone out, and never arrives.
class CutTransport final : public transport::testing::ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  transport::Operation send(transport::Peer peer, const transport::Tag& tag,
                            transport::ConstBuffer data) override {
    ++sent;
    if (cut.contains(peer)) return transport::Operation(Status(Done{}));
    return ForwardingTransport::send(peer, tag, std::move(data));
  }

  std::set<transport::Peer> cut;
  int sent = 0;
};

StateMove move(NodeId from, NodeId to) { return {{}, {from, 0}, {to, 0}}; }

/// Node 0 gives state to nodes 1 and 2, which have nothing to do with each other; all look every
/// 200 ms.
class Copying {
 public:
  Copying() {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < 3; ++options.self) {
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->transport =
          std::make_unique<CutTransport>(transport::create_transport("inproc", options).value());
    }
    for (auto& node : nodes_)
      for (std::int32_t peer = 0; peer < 3; ++peer)
        REQUIRE(node->transport->connect(peer, transport(peer).address()).ok());
    for (const std::int32_t node : {0, 1, 2}) begin(node, 7);
  }

  /// Each node hears of its own moves alone.
  void begin(std::int32_t node, EpochNumber epoch) {
    Configuration layout;
    layout.epoch_number = epoch;
    layout.moves = {{{}, {}, {NodeId{node}, 0}}, {{}, {NodeId{node}, 0}, {NodeId{node}, 1}}};
    for (const std::int32_t to : {1, 2})
      if (node == 0 || node == to) layout.moves.push_back(move(NodeId{0}, NodeId{to}));
    watch(node).begin(transport(node), layout, NodeId{node});
  }

  /// Looks until this time after the beginning. What each heard nothing of is of the last look.
  void look_until(Duration end) {
    for (; looked <= end; looked += kLookInterval)
      for (auto& node : nodes_)
        node->silent = node->watch.pass(kStart + looked, kInterval, node->devices);
  }

  CutTransport& transport(std::int32_t node) { return *at(node).transport; }
  CopyWatch& watch(std::int32_t node) { return at(node).watch; }
  const WorkOfDevices& devices(std::int32_t node) { return at(node).devices; }
  const std::vector<engine::SilentPeer>& silent(std::int32_t node) { return at(node).silent; }
  bool all_are_heard() { return silent(0).empty() && silent(1).empty() && silent(2).empty(); }

  Duration looked{};

 private:
  struct Node {
    std::unique_ptr<CutTransport> transport;
    WorkOfDevices devices{{0, std::make_shared<engine::WorkInHand>()},
                          {1, std::make_shared<engine::WorkInHand>()}};
    CopyWatch watch;
    std::vector<engine::SilentPeer> silent;
  };
  Node& at(std::int32_t node) { return *nodes_[static_cast<std::size_t>(node)]; }

  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST_CASE("nodes that show each other that they live may copy for as long as they want",
          "[actors][recovery]") {
  Copying copying;
  copying.transport(1).cut = {2};  // They copy nothing, and need no way.
  copying.transport(2).cut = {1};
  for (Duration end{}; end <= 60s; end += kLookInterval) {
    copying.look_until(end);
    CHECK(copying.all_are_heard());
  }
  CHECK(copying.transport(0).sent == 2 * 151);  // Of looks every 200 ms, each second one.
  CHECK(copying.transport(1).sent == 151);
}

TEST_CASE("of whom nothing comes while state is copied is told, by who gives and by who gets",
          "[actors][recovery]") {
  Copying copying;
  copying.look_until(5s);
  const bool gets = true, gives = false;
  for (const bool side : {gets, gives}) {
    CAPTURE(side);
    const std::int32_t deaf = side == gets ? 1 : 0, mute = 1 - deaf;
    copying.transport(mute).cut = {deaf};
    copying.transport(deaf).cut = {};
    const Duration begin = copying.looked;
    copying.look_until(begin + 600ms);
    CHECK(copying.silent(deaf).empty());
    copying.look_until(begin + 3s);
    CHECK(copying.silent(mute).empty());  // Which hears the other one.
    CHECK(copying.silent(2).empty());
    REQUIRE(copying.silent(deaf).size() == 1);
    const engine::SilentPeer& told = copying.silent(deaf)[0];
    CHECK(told.peer == NodeId{mute});
    CHECK(told.epoch_number == 7);
    CHECK(told.seconds >= 2.8);  // The last sign came at the look before, or the one before that.
    CHECK(told.seconds <= 3.4);
  }
}

TEST_CASE("a message of state shows that its sender lives, whatever it carries",
          "[actors][recovery]") {
  Copying copying;
  copying.transport(0).cut = {1};
  for (int look = 0; look < 50; ++look) {
    // To either device of the node, each fourth look.
    if (look % 4 == 0) copying.devices(1).at(look % 8 == 0 ? 0 : 1)->came(NodeId{0});
    copying.devices(1).at(0)->came(NodeId{2});  // Says nothing of node 0.
    copying.look_until(copying.looked);
    CHECK(copying.silent(1).empty());
  }
  copying.look_until(copying.looked + 2s);
  CHECK(copying.silent(1).size() == 1);
}

TEST_CASE("time in which the node was held up itself does not count as its peers' silence",
          "[actors][recovery]") {
  Copying copying;
  copying.transport(0).cut = {1};
  copying.look_until(200ms);
  const auto look = [&](Duration at) {
    return copying.watch(1).pass(kStart + at, kInterval, copying.devices(1));
  };
  CHECK(look(1h).empty());  // 0.2 s, and 0.4 s.
  CHECK(look(2h).empty());  // 1 s.
  CHECK(look(3h).size() == 1);
}

TEST_CASE("signs of another layout's copies are none", "[actors][recovery]") {
  Copying copying;
  copying.look_until(5s);
  copying.begin(1, 8);
  copying.look_until(8s);
  REQUIRE(copying.silent(1).size() == 1);
  CHECK(copying.silent(1)[0].peer == NodeId{0});
  CHECK(copying.silent(1)[0].epoch_number == 8);
  copying.begin(0, 8);
  copying.look_until(9s);
  CHECK(copying.silent(1).empty());
}

TEST_CASE("once all state has come nobody is watched, and nothing is said", "[actors][recovery]") {
  Copying copying;
  copying.look_until(5s);
  const int sent = copying.transport(1).sent;
  copying.watch(1).end();
  copying.transport(0).cut = {1};
  copying.look_until(20s);
  CHECK(copying.silent(1).empty());
  CHECK(copying.transport(1).sent == sent);
}

TEST_CASE("a connection that has ended is for its transport to tell", "[actors][recovery]") {
  Copying copying;
  copying.look_until(5s);
  copying.transport(0).disconnect(1, {Errc::transport_failed, "it is over", {}, {}});
  copying.look_until(20s);
  CHECK(copying.all_are_heard());
}

}  // namespace
}  // namespace troupe::actors
