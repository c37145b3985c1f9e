#include "tests/torch_catch.hpp"

#include "engine/execution/tensor_mailbox.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <memory>
#include <thread>

#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

using transport::TagKind;

/// A mailbox on node 0 and the one of its peer, node 1.
struct Fixture {
  std::unique_ptr<Device> device = make_device({});
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<TensorMailbox> mailboxes;

  Fixture() {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < 2; ++options.self)
      transports.push_back(transport::create_transport("inproc", options).value());
    for (transport::Peer peer = 0; peer < 2; ++peer) {
      const auto other = static_cast<std::size_t>(1 - peer);
      REQUIRE(transports[other]
                  ->connect(peer, transports[static_cast<std::size_t>(peer)]->address())
                  .ok());
    }
    for (auto& transport : transports) mailboxes.emplace_back(*transport, *device, 1, [] {});
  }

  TensorMailbox& here() { return mailboxes[0]; }
  TensorMailbox& there() { return mailboxes[1]; }
};

/// `elements` doubles from node 1.
Arrival arrival(TagKind kind, std::uint64_t index, std::int64_t elements) {
  return {{kind, index}, 1, false, {elements}, at::kDouble};
}

at::Tensor tensor(std::int64_t elements, double value) {
  return at::full({elements}, value, at::kDouble);
}

TEST_CASE("receives are posted as far as the bound has room, and again after a release",
          "[engine]") {
  Fixture fixture;
  fixture.here().begin(1, Bytes{24});
  fixture.there().begin(1, {});
  const auto first = arrival(TagKind::rows, 0, 2), second = arrival(TagKind::rows, 1, 2);
  CHECK(fixture.here().post({first}).value());
  CHECK_FALSE(fixture.here().post({second}).value());  // 16 + 16 bytes are more than 24.
  CHECK(fixture.here().peak() == Bytes{16});

  fixture.there().send({first.key, 0, tensor(2, 5)});
  REQUIRE(fixture.here().arrived({first}).value());
  CHECK(at::equal(*fixture.here().take(first.key), tensor(2, 5)));
  // The work that took it may not have looked into it yet.
  CHECK_FALSE(fixture.here().post({second}).value());
  fixture.here().release(first.key);
  CHECK(fixture.here().post({second}).value());
  CHECK(fixture.here().peak() == Bytes{16});
  // What is larger than the bound is posted alone.
  fixture.here().begin(2, Bytes{24});
  CHECK(fixture.here().post({arrival(TagKind::rows, 0, 9)}).value());
}

TEST_CASE("a mailbox has what has come, and what was handed over here", "[engine]") {
  Fixture fixture;
  fixture.here().begin(1, Bytes{1000});
  fixture.there().begin(1, {});
  const auto coming = arrival(TagKind::reduce, 0, 2), late = arrival(TagKind::reduce, 1, 2);
  const auto own = arrival(TagKind::rows, 2, 2);
  fixture.there().send({coming.key, 0, tensor(2, 1)});
  CHECK_FALSE(fixture.here().has(coming));  // It may have, but was not posted.
  REQUIRE(fixture.here().post({coming, late}).value());
  fixture.here().put(own.key, Bytes{16});
  CHECK(fixture.here().has(coming));
  CHECK_FALSE(fixture.here().has(late));
  CHECK(fixture.here().has(own));
}

TEST_CASE("what has arrived is held until work has it; reductions are gradients' own memory",
          "[engine]") {
  Fixture fixture;
  fixture.here().begin(1, Bytes{1000});
  fixture.there().begin(1, {});
  const auto rows = arrival(TagKind::rows, 0, 2), gradient = arrival(TagKind::gradient, 0, 3);
  const auto sum = arrival(TagKind::reduce, 0, 100);
  REQUIRE(fixture.here().post({rows, gradient, sum}).value());
  CHECK(fixture.here().held() == Bytes{});
  fixture.there().send({rows.key, 0, tensor(2, 1)});
  fixture.there().send({gradient.key, 0, tensor(3, 2)});
  fixture.there().send({sum.key, 0, tensor(100, 3)});
  CHECK(fixture.here().held() == Bytes{16 + 24});
  fixture.here().put({TagKind::rows, 7}, Bytes{32});  // From this device itself.
  CHECK(fixture.here().held() == Bytes{16 + 24 + 32});
  fixture.here().take(gradient.key);
  fixture.here().take(sum.key);
  fixture.here().take({TagKind::rows, 7});
  CHECK(fixture.here().held() == Bytes{16 + 24 + 32});
  fixture.here().release(gradient.key);
  fixture.here().release(sum.key);
  CHECK(fixture.here().held() == Bytes{16 + 32});
  fixture.here().release({TagKind::rows, 7});
  CHECK(fixture.here().held() == Bytes{16});
}

TEST_CASE("rows and gradients of one message, and those of other steps, are kept apart",
          "[engine]") {
  Fixture fixture;
  for (const std::int64_t step : {1, 2}) {
    fixture.here().begin(step, Bytes{1000});
    fixture.there().begin(step, {});
    const auto rows = arrival(TagKind::rows, 4, 1), gradient = arrival(TagKind::gradient, 4, 1);
    REQUIRE(fixture.here().post({rows, gradient}).value());
    fixture.there().send({gradient.key, 0, tensor(1, 10.0 * static_cast<double>(step))});
    CHECK_FALSE(fixture.here().arrived({rows}).value());
    fixture.there().send({rows.key, 0, tensor(1, static_cast<double>(step))});
    REQUIRE(fixture.here().arrived({rows, gradient}).value());
    CHECK(fixture.here().take(rows.key)->item<double>() == static_cast<double>(step));
    CHECK(fixture.here().take(gradient.key)->item<double>() == 10.0 * static_cast<double>(step));
  }
}

TEST_CASE("what a lost peer owes is an error, on either way", "[engine][errors]") {
  Fixture fixture;
  fixture.here().begin(1, Bytes{1000});
  const auto rows = arrival(TagKind::rows, 0, 2);
  REQUIRE(fixture.here().post({rows}).value());
  fixture.here().send({{TagKind::gradient, 0}, 1, tensor(2, 1)});
  CHECK(fixture.here().check().ok());
  CHECK_FALSE(fixture.here().all_sent());
  fixture.transports[0]->disconnect(1, {Errc::transport_failed, "it is gone", {}, {}});
  CHECK_FALSE(fixture.here().arrived({rows}).ok());
  CHECK_FALSE(fixture.here().check().ok());
}

}  // namespace
}  // namespace troupe::engine
