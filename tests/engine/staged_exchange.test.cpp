// Devices of two nodes that send each other, and those of their own node, more than their rings of
// host memory have room for.

#include "tests/torch_catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/tensor_mailbox.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

constexpr std::size_t kDevices = 4;

/// Of two nodes, two devices each.
transport::Peer node_of(std::size_t device) { return device < 2 ? 0 : 1; }

struct Coming {
  Arrival arrival;
  at::Tensor values;
};

struct Devices {
  explicit Devices(std::uint64_t seed) {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < 2; ++options.self)
      transports.push_back(transport::create_transport("inproc", options).value());
    REQUIRE(transports[0]->connect(1, transports[1]->address()).ok());
    REQUIRE(transports[1]->connect(0, transports[0]->address()).ok());
    for (std::size_t device = 0; device < kDevices; ++device) {
      devices.push_back(make_device({.delay_ms_max = 0.5, .seed = kDevices * seed + device}));
      mailboxes.push_back(std::make_unique<TensorMailbox>(
          *transports[static_cast<std::size_t>(node_of(device))], *devices[device], 1, [] {}));
      mailboxes.back()->begin(1, Bytes{100'000});
    }
  }

  /// Sends what is next, goes on with what a device sends, posts as far as the bound has room, and
  /// takes what is next.
  void turn(std::size_t device) {
    TensorMailbox& mailbox = *mailboxes[device];
    if (sent[device] < leaving[device].size()) mailbox.send(leaving[device][sent[device]++]);
    REQUIRE(mailbox.check().ok());
    REQUIRE(mailbox.failed_copy() == nullptr);
    const auto& list = coming[device];
    while (posted[device] < list.size()) {
      const auto room = mailbox.post({list[posted[device]].arrival});
      REQUIRE(room.ok());
      if (!room.value()) break;
      ++posted[device];
    }
    if (taken[device] == posted[device]) return;
    const Coming& next = list[taken[device]];
    const auto here = mailbox.arrived({next.arrival});
    REQUIRE(here.ok());
    if (!here.value()) return;
    CHECK(at::equal(*mailbox.take(next.arrival.key), next.values));
    mailbox.release(next.arrival.key);
    ++taken[device];
  }

  bool are_done() const {
    for (std::size_t device = 0; device < kDevices; ++device)
      if (taken[device] < coming[device].size()) return false;
    return true;
  }

  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<TensorMailbox>> mailboxes;
  std::array<std::vector<Coming>, kDevices> coming;
  std::array<std::vector<Parcel>, kDevices> leaving;
  std::array<std::size_t, kDevices> sent{}, posted{}, taken{};
};

TEST_CASE("devices that send each other more than their rings hold get all of it, in any order",
          "[engine][property]") {
  const auto seed = GENERATE(range(0u, 6u));
  CAPTURE(seed);
  std::minstd_rand random(seed + 1);
  Devices all(seed);
  for (std::uint64_t index = 0; index < 24; ++index) {
    const std::size_t from = random() % kDevices;
    const std::size_t to = (from + 1 + random() % (kDevices - 1)) % kDevices;
    const auto elements = static_cast<std::int64_t>(1 + random() % 9000);  // Nine pieces at most.
    const at::Tensor values =
        at::arange(elements, at::kDouble).add(static_cast<double>(random() % 1000));
    const Arrival arrival{
        {transport::TagKind::rows, index}, node_of(from), false, {elements}, at::kDouble};
    all.coming[to].push_back({arrival, values});
    all.leaving[from].push_back({arrival.key, node_of(to), values});
  }
  for (auto& list : all.coming) std::shuffle(list.begin(), list.end(), random);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!all.are_done() && std::chrono::steady_clock::now() < end) {
    for (std::size_t device = 0; device < kDevices; ++device) all.turn(device);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  CHECK(all.are_done());
  for (const auto& mailbox : all.mailboxes) {
    REQUIRE(mailbox->check().ok());
    CHECK(mailbox->all_sent());
  }
}

}  // namespace
}  // namespace troupe::engine
