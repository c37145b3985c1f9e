#include "tests/torch_catch.hpp"

#include "engine/execution/staged_sends.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "engine/execution/tensor_mailbox.hpp"
#include "tests/transport/forwarding_transport.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

using transport::TagKind;

/// A device whose copies out are done when a test says so. Four doubles are a piece, three pieces a
/// ring.
class HeldDevice final : public Device {
 public:
  struct Copy {
    at::Tensor from, to;
    std::function<void()> on_done;
    std::shared_ptr<Launch> launch;
  };
  std::deque<Copy> copies;             ///< Under way.
  int buffers = 0;                     ///< Of host memory, that were ever made.
  MemoryKind kind = MemoryKind::host;  ///< As a transport sees it.

  std::shared_ptr<const Launch> launch(Work, std::function<void()>) override { return nullptr; }
  at::Tensor host_buffer(at::IntArrayRef shape, at::ScalarType dtype) override {
    ++buffers;
    return dtype == at::kByte ? at::full(shape, 0xff, dtype)
                              : at::full(shape, std::numeric_limits<double>::quiet_NaN(), dtype);
  }
  at::Tensor to_host(at::Tensor tensor) override { return tensor; }
  void write_to_host(at::Tensor, at::Tensor) override {}
  at::Tensor to_device(at::Tensor buffer) override { return buffer; }
  MemoryKind memory() const override { return kind; }
  std::function<void()> entry() const override {
    return [] {};
  }
  std::optional<Staging> staging() const override { return Staging{32, 3}; }
  std::shared_ptr<const Launch> copy_out(at::Tensor tensor, at::Tensor host,
                                         std::function<void()> on_done) override {
    copies.push_back(
        {std::move(tensor), std::move(host), std::move(on_done), std::make_shared<Launch>()});
    return copies.back().launch;
  }
  void drop() override { copies.clear(); }
  void wait() override {}

  /// The first copy under way ends, with this.
  void end_copy(Status status = Done{}) {
    const Copy copy = std::move(copies.front());
    copies.pop_front();
    if (status.ok()) copy.to.copy_(copy.from);
    copy.launch->complete(std::move(status));
    copy.on_done();
  }
  void end_copies() {
    while (!copies.empty()) end_copy();
  }
};

/// Holds on to the memory of what it has sent, as a backend may for longer than the send lasts, and
/// takes that of GPUs, which are no more than hosts here, where it is told to.
class KeepingTransport final : public transport::testing::ForwardingTransport {
 public:
  KeepingTransport(std::unique_ptr<transport::Transport> inner, bool takes_cuda)
      : ForwardingTransport(std::move(inner)), takes_cuda_(takes_cuda) {}

  std::vector<std::shared_ptr<const void>> kept;
  std::vector<MemoryKind> sent_from;  ///< What was kept.
  int prepared = 0;

  bool takes(MemoryKind kind) const override {
    return kind == MemoryKind::host || (takes_cuda_ && kind == MemoryKind::cuda);
  }
  void prepare_thread(std::function<void()> call) override {
    ++prepared;
    call();
  }

  transport::Operation send(transport::Peer peer, const transport::Tag& tag,
                            transport::ConstBuffer data) override {
    if (data.owner != nullptr) {
      kept.push_back(data.owner);
      sent_from.push_back(data.memory);
    }
    return ForwardingTransport::send(peer, tag, std::move(data));
  }

 private:
  const bool takes_cuda_;
};

/// Node 0 receives what node 1 sends, each with a device of its own.
struct Fixture {
  explicit Fixture(std::unique_ptr<Device> receiving = std::make_unique<HeldDevice>(),
                   std::unique_ptr<Device> sending = std::make_unique<HeldDevice>(),
                   bool takes_cuda = false) {
    devices.push_back(std::move(receiving));
    devices.push_back(std::move(sending));
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < 2; ++options.self)
      transports.push_back(std::make_unique<KeepingTransport>(
          transport::create_transport("inproc", options).value(), takes_cuda));
    REQUIRE(transports[0]->connect(1, transports[1]->address()).ok());
    REQUIRE(transports[1]->connect(0, transports[0]->address()).ok());
    for (std::size_t node = 0; node < 2; ++node) {
      mailboxes.emplace_back(*transports[node], *devices[node], 1, [] {});
      mailboxes.back().begin(1, Bytes{1 << 30});
    }
  }

  TensorMailbox& here() { return mailboxes[0]; }
  TensorMailbox& there() { return mailboxes[1]; }
  HeldDevice& sender() { return dynamic_cast<HeldDevice&>(*devices[1]); }

  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<KeepingTransport>> transports;
  std::vector<TensorMailbox> mailboxes;
};

Arrival arrival(std::uint64_t index, std::int64_t elements) {
  return {{TagKind::rows, index}, 1, false, {elements}, at::kDouble};
}

at::Tensor numbers(std::int64_t elements, double first = 1) {
  return at::arange(elements, at::kDouble).add(first);
}

TEST_CASE("a message of a device leaves by pieces, each when its copy is done", "[engine]") {
  Fixture fixture;
  const Arrival rows = arrival(7, 10);  // Pieces of 4, 4 and 2.
  REQUIRE(fixture.here().post({rows}).value());
  fixture.there().send({rows.key, 0, numbers(10)});
  CHECK(fixture.sender().copies.empty());
  for (const int under_way : {3, 2, 1}) {
    REQUIRE(fixture.there().check().ok());
    REQUIRE(fixture.sender().copies.size() == static_cast<std::size_t>(under_way));
    CHECK_FALSE(fixture.here().arrived({rows}).value());
    CHECK_FALSE(fixture.here().has(rows));
    CHECK(fixture.here().held() == Bytes{});
    CHECK_FALSE(fixture.there().all_sent());
    fixture.sender().end_copy();
  }
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.here().arrived({rows}).value());
  CHECK(fixture.here().held() == Bytes{80});
  CHECK(at::equal(*fixture.here().take(rows.key), numbers(10)));
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.there().all_sent());
}

TEST_CASE("a place of the ring is used again when the transport has let go of it", "[engine]") {
  Fixture fixture;
  const Arrival rows = arrival(0, 34);  // Nine pieces.
  REQUIRE(fixture.here().post({rows}).value());
  fixture.there().send({rows.key, 0, numbers(34)});
  for (int round = 0; round < 3; ++round) {
    REQUIRE(fixture.there().check().ok());
    REQUIRE(fixture.sender().copies.size() == 3);
    fixture.sender().end_copies();
    // They leave; the transport may still read them.
    for (int again = 0; again < 2; ++again) REQUIRE(fixture.there().check().ok());
    CHECK(fixture.sender().copies.empty());
    CHECK(fixture.here().arrived({rows}).value() == (round == 2));
    fixture.transports[1]->kept.clear();
  }
  CHECK(at::equal(*fixture.here().take(rows.key), numbers(34)));
  CHECK(fixture.sender().buffers == 3);
}

TEST_CASE("a place of the ring is used again behind a step that was given up", "[engine]") {
  Fixture fixture;
  for (const std::int64_t step : {2, 3}) {
    fixture.here().begin(step, Bytes{1 << 30});
    fixture.there().begin(step, {});
    const Arrival rows = arrival(0, 12);
    REQUIRE(fixture.here().post({rows}).value());
    fixture.there().send({rows.key, 0, numbers(12)});
    REQUIRE(fixture.there().check().ok());
    REQUIRE(fixture.sender().copies.size() == 3);
    fixture.sender().drop();
  }
  CHECK(fixture.sender().buffers == 3);
}

TEST_CASE("who has not posted takes no place of the ring from who has", "[engine]") {
  Fixture fixture;
  const Arrival later = arrival(0, 12), wanted = arrival(1, 12);
  REQUIRE(fixture.here().post({wanted}).value());
  fixture.there().send({later.key, 0, numbers(12)});
  fixture.there().send({wanted.key, 0, numbers(12, 50)});
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.sender().copies.size() == 3);
  fixture.sender().end_copies();
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.here().arrived({wanted}).value());
  CHECK(at::equal(*fixture.here().take(wanted.key), numbers(12, 50)));
  CHECK_FALSE(fixture.there().all_sent());
  REQUIRE(fixture.here().post({later}).value());
  fixture.transports[1]->kept.clear();
  REQUIRE(fixture.there().check().ok());
  fixture.sender().end_copies();
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.here().arrived({later}).value());
  CHECK(at::equal(*fixture.here().take(later.key), numbers(12)));
}

TEST_CASE("what nobody has posted for leaves the device where it is more than a ring", "[engine]") {
  Fixture fixture;
  const Arrival first = arrival(0, 10), second = arrival(1, 10), third = arrival(2, 2);
  // 80 bytes may lie there, and 16 more; 80 beside them are beyond 96.
  fixture.there().send({first.key, 0, numbers(10)});
  fixture.there().send({second.key, 0, numbers(10, 20)});
  fixture.there().send({third.key, 0, numbers(2, 40)});
  for (int again = 0; again < 2; ++again) REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.sender().copies.size() == 1);
  CHECK(fixture.sender().copies.front().from.numel() == 10);
  CHECK(fixture.sender().buffers == 1);
  REQUIRE(fixture.here().post({first, second, third}).value());
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.sender().copies.size() == 1 + 3);  // The ring has room for the first.
  CHECK_FALSE(fixture.here().arrived({second}).value());
  fixture.sender().end_copies();
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.here().arrived({first}).value());
  CHECK(at::equal(*fixture.here().take(second.key), numbers(10, 20)));
  fixture.transports[1]->kept.clear();
  REQUIRE(fixture.there().check().ok());
  fixture.sender().end_copies();
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.here().arrived({third}).value());
  CHECK(at::equal(*fixture.here().take(third.key), numbers(2, 40)));
  CHECK(fixture.sender().buffers == 1 + 3);
}

TEST_CASE("host memory leaves without a copy, and content as a whole", "[engine]") {
  Fixture fixture;
  const Arrival rows = arrival(0, 10);
  const Arrival content{{TagKind::content, 0}, 1, false, {100}, at::kByte};
  REQUIRE(fixture.here().post({rows, content}).value());
  fixture.there().send({rows.key, 0, numbers(10), {}, true});
  fixture.there().send({content.key, 0, at::full({100}, 7, at::kByte), {}, true});
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.sender().copies.empty());
  REQUIRE(fixture.here().arrived({rows, content}).value());
  CHECK(at::equal(*fixture.here().take(rows.key), numbers(10)));
  CHECK(at::equal(*fixture.here().take(content.key), at::full({100}, 7, at::kByte)));
}

TEST_CASE("a copy that fails is told, and nothing leaves of it", "[engine][errors]") {
  Fixture fixture;
  const Arrival rows = arrival(0, 4);
  REQUIRE(fixture.here().post({rows}).value());
  fixture.there().send({rows.key, 0, numbers(4)});
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.there().failed_copy() == nullptr);
  fixture.sender().end_copy(Error{Errc::internal, "the device failed: gone", {}, {}});
  REQUIRE(fixture.there().check().ok());
  const auto failed = fixture.there().failed_copy();
  REQUIRE(failed != nullptr);
  CHECK(failed->status().error().message == "the device failed: gone");
  CHECK_FALSE(fixture.here().arrived({rows}).value());
  CHECK_FALSE(fixture.there().all_sent());
}

TEST_CASE("a copy that makes room and fails is told before anybody has posted",
          "[engine][errors]") {
  Fixture fixture;
  fixture.there().send({arrival(0, 20).key, 0, numbers(20)});
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.sender().copies.size() == 1);
  fixture.sender().end_copy(Error{Errc::internal, "the device failed: gone", {}, {}});
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.there().failed_copy() != nullptr);
}

TEST_CASE("a receiver that is lost is an error, and forgotten where nobody needs it",
          "[engine][errors]") {
  Fixture fixture;
  fixture.there().send({arrival(0, 4).key, 0, numbers(4)});
  REQUIRE(fixture.there().check().ok());
  fixture.transports[1]->disconnect(0, {Errc::transport_failed, "it is gone", {}, {}});
  CHECK_FALSE(fixture.there().check().ok());
  CHECK_FALSE(fixture.there().all_sent());
  fixture.there().forget_ended_sends();
  CHECK(fixture.there().all_sent());
  CHECK(fixture.there().check().ok());
}

TEST_CASE("what a transport reads on a device leaves from there, but to its own node", "[engine]") {
  auto sending = std::make_unique<HeldDevice>();
  sending->kind = GENERATE(MemoryKind::cuda, MemoryKind::other, MemoryKind::host);
  const bool is_read = sending->kind == MemoryKind::cuda;
  Fixture fixture(std::make_unique<HeldDevice>(), std::move(sending), true);
  CHECK(fixture.transports[1]->prepared == (is_read ? 1 : 0));
  CHECK(fixture.transports[0]->prepared == 0);
  const Arrival rows = arrival(0, 10), own = arrival(1, 4);
  fixture.there().send({rows.key, 0, numbers(10)});
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.transports[1]->kept.empty());  // Nor does it leave before somebody has posted.
  REQUIRE(fixture.here().post({rows}).value());
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.sender().copies.size() == (is_read ? 0U : 3U));
  fixture.sender().end_copies();
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.here().arrived({rows}).value());
  CHECK(at::equal(*fixture.here().take(rows.key), numbers(10)));
  CHECK((fixture.transports[1]->sent_from ==
         std::vector<MemoryKind>(3, is_read ? MemoryKind::cuda : MemoryKind::host)));
  fixture.transports[1]->kept.clear();
  // To its own node the processor moves bytes.
  REQUIRE(fixture.there().post({own}).value());
  fixture.there().send({own.key, 1, numbers(4)});
  REQUIRE(fixture.there().check().ok());
  REQUIRE(fixture.sender().copies.size() == 1);
  fixture.sender().end_copies();
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.there().arrived({own}).value());
  CHECK(fixture.transports[1]->sent_from.back() == MemoryKind::host);
}

TEST_CASE("pieces and words have tags of their own", "[engine]") {
  const auto tag = transport::make_tag(3, TagKind::reduce, 5, 77);
  CHECK(piece_tag(tag, 0) == tag);
  CHECK(piece_tag(tag, 1) != piece_tag(tag, 2));
  for (const std::int64_t number : {0, 1, 32767}) CHECK(piece_tag(tag, number) != word_tag(tag));
  // By hand: 10 elements of 8 bytes in pieces of 32 bytes.
  const PieceCut cut = cut_of(numbers(10), {32, 3});
  CHECK(cut.elements == 4);
  CHECK(cut.pieces == 3);
  CHECK(at::equal(piece_of(numbers(10), cut, 2), numbers(2, 9)));
  CHECK(cut_of(numbers(0), {32, 3}).pieces == 1);
  CHECK(cut_of(numbers(8), {32, 3}).pieces == 2);
}

TEST_CASE("late devices send all that is posted for, in any order, to the bit",
          "[engine][property]") {
  const auto seed = GENERATE(range(0u, 6u));
  CAPTURE(seed);
  std::minstd_rand random(seed + 1);
  Fixture fixture(make_device({.delay_ms_max = 1, .seed = seed}),
                  make_device({.delay_ms_max = 1, .seed = seed + 1}));
  std::vector<Arrival> arrivals;
  std::vector<at::Tensor> values;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto elements = static_cast<std::int64_t>(1 + random() % 9000);  // Nine pieces at most.
    arrivals.push_back(arrival(i, elements));
    values.push_back(numbers(elements, static_cast<double>(random() % 1000)));
    fixture.there().send({arrivals.back().key, 0, values.back()});
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<std::size_t> order{5, 0, 7, 2, 1, 6, 3, 4};
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(seed), order.end());
  std::size_t posted = 0, taken = 0;
  while (taken < order.size() && std::chrono::steady_clock::now() < end) {
    REQUIRE(fixture.there().check().ok());
    REQUIRE(fixture.there().failed_copy() == nullptr);
    // Two are posted at a time: whoever else is in the ring would keep them out.
    if (posted < order.size() && posted < taken + 2)
      REQUIRE(fixture.here().post({arrivals[order[posted++]]}).value());
    if (taken < posted && fixture.here().arrived({arrivals[order[taken]]}).value()) {
      const std::size_t next = order[taken++];
      CHECK(at::equal(*fixture.here().take(arrivals[next].key), values[next]));
      fixture.here().release(arrivals[next].key);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    fixture.transports[1]->kept.clear();
  }
  CHECK(taken == order.size());
  REQUIRE(fixture.there().check().ok());
  CHECK(fixture.there().all_sent());
}

}  // namespace
}  // namespace troupe::engine
