// The loader's own threads decode, so these cases run on a real scheduler and wait for messages.

#include "tests/torch_catch.hpp"

#include "actors/node/loader_actor.hpp"

#include <fstream>
#include <variant>

#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/data/lengths/length_index.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {
namespace {

/// Long enough for a busy machine; reached only when a test fails.
constexpr auto kPatience = std::chrono::seconds(60);

/// A node that hands on what its loader tells it.
NodeActor::behavior_type relay(NodeActor::pointer, const caf::actor& target) {
  return {
      [](apply_atom, const Configuration&) {},
      [](const IterationPlan&) {},
      [](const engine::StepVerdict&) {},
      [](const engine::BatchOrder&) {},
      [](collect_atom, Collection) {},
      [](stop_atom, const std::string&, std::int32_t) {},
      [](stop_atom, const Error&) {},
      [](begin_atom, const std::string&) {},
      [](stop_atom, std::int32_t) {},
      [](join_atom, const caf::strong_actor_ptr&) {},
      [](alive_atom) {},
      [](leave_atom, const std::string&) {},
      [](tick_atom) {},
      [](const engine::Prepared&) {},
      [](const engine::DeviceReport&) {},
      [](settle_atom, EpochNumber) {},
      [](fetched_atom, std::int32_t, EpochNumber) {},
      [](applied_atom, std::int32_t, EpochNumber) {},
      [target](const engine::BatchReport& report) { caf::anon_send(target, report); },
      [](const Offers&) {},
      [](const SaveOrder&) {},
      [](const SaveReport&) {},
      [](const NodeReady&) {},
      [target](failed_atom, const Error& error) { caf::anon_send(target, error); },
      [](failed_atom, EpochNumber, const Error&) {},
      [](const engine::FailedWork&) {},
      [](lost_atom, NodeId, bool, const std::string&) {},
  };
}

/// A loader over ten conversations, "s0" to "s9" in file order; nobody answers in the last.
class Fixture {
 public:
  Fixture() {
    std::ofstream file(folder_ / "samples.json");
    for (int i = 0; i < 10; ++i)
      file << R"({"id": "s)" << i << R"(", "conversations": [{"from": "human", "value": "q"}, )"
           << R"({"from": "gpt", "value": ")" << (i < 9 ? "a" : "") << "\"}]}\n";
    file.close();
    job::Job job = engine::tiny_job();
    job.data.sources = {{"llava", folder_ / "samples.json", folder_.path()}};
    job.data.shuffle = false;
    resources.setup = engine::prepare(job).value();
    resources.dataset =
        std::make_shared<const data::Dataset>(data::Dataset::open(resources.setup.data).value());
    resources.node = NodeId{2};
    data::LengthIndexOptions options;
    options.folder = folder_ / "lengths";
    resources.setup.lengths =
        std::make_shared<data::LengthIndex>(options, std::vector<std::string>{"samples"});
    node_ = system_.spawn(relay, caf::actor_cast<caf::actor>(self_));
    actor_ = system_.spawn<caf::detached>(loader, &resources, node_);
  }

  ~Fixture() {
    caf::anon_send_exit(actor_, caf::exit_reason::kill);
    caf::anon_send_exit(node_, caf::exit_reason::kill);
  }

  /// What the node is told next.
  std::variant<std::monostate, engine::BatchReport, Error> next() {
    std::variant<std::monostate, engine::BatchReport, Error> told;
    self_->receive([&](const engine::BatchReport& report) { told = report; },
                   [&](const Error& error) { told = error; }, caf::after(kPatience) >> [] {});
    return told;
  }

  /// Orders text of these positions of epoch 1.
  void order(std::int64_t batch, std::vector<std::int64_t> positions,
             EpochNumber epoch_number = 1) {
    engine::BatchOrder order{epoch_number, batch, 1, {}};
    for (const std::int64_t position : positions) order.samples.push_back({position, {}, true});
    caf::anon_send(actor_, order);
  }

  void measure(std::int64_t batch, std::vector<std::int64_t> positions) {
    engine::BatchOrder order{1, batch, 1, {}};
    order.measure = true;
    for (const std::int64_t position : positions) order.samples.push_back({position, {}, true});
    caf::anon_send(actor_, order);
  }

  NodeResources resources;

 private:
  struct Config : caf::actor_system_config {
    Config() { add_messages(*this); }
  };

  testing::ScratchFolder folder_;
  Config config_;
  caf::actor_system system_{config_};
  caf::scoped_actor self_{system_};
  // After the system, which waits in its end until nobody refers to a detached actor any more.
  NodeActor node_;
  LoaderActor actor_;
};

TEST_CASE("a loader reports on its share and keeps the samples for the devices", "[actors]") {
  Fixture fixture;
  fixture.order(3, {4, 9, 6});

  const auto told = fixture.next();
  REQUIRE(std::holds_alternative<engine::BatchReport>(told));
  const auto& report = std::get<engine::BatchReport>(told);
  CHECK(report.node == NodeId{2});
  CHECK(report.batch == 3);
  CHECK(report.epoch_number == 1);
  REQUIRE(report.samples.size() == 3);
  CHECK(report.samples[0].id == "s4");
  CHECK(report.samples[0].text_tokens == 7);  // begin user q end assistant a end
  CHECK(report.samples[0].trained_tokens == 2);
  CHECK(report.samples[1].bad);  // Nobody answers in s9.
  CHECK(report.samples[1].bad_reason == "every assistant turn is empty");
  // The devices look samples up by their place in the order of all epochs: 10 records, epoch 1.
  REQUIRE(fixture.resources.samples.find(14));
  CHECK(fixture.resources.samples.find(14)->id == "s4");
  CHECK(fixture.resources.samples.find(16)->id == "s6");
  CHECK_FALSE(fixture.resources.samples.find(19));
}

TEST_CASE("a loader measures what it is asked to, and keeps nothing of it", "[actors]") {
  Fixture fixture;
  fixture.measure(3, {4, 9});
  const auto told = fixture.next();
  REQUIRE(std::holds_alternative<engine::BatchReport>(told));
  const auto& report = std::get<engine::BatchReport>(told);
  CHECK(report.measured);
  CHECK(report.node == NodeId{2});
  REQUIRE(report.samples.size() == 2);
  CHECK(report.samples[0].position == 4);
  CHECK(report.samples[0].text_tokens == 7);
  CHECK(report.samples[0].trained_tokens == 2);
  CHECK(report.samples[0].has_text);
  CHECK(report.samples[1].bad);
  CHECK_FALSE(fixture.resources.samples.find(14));
  // The same batch is decoded next.
  fixture.order(3, {4});
  const auto decoded = fixture.next();
  REQUIRE(std::holds_alternative<engine::BatchReport>(decoded));
  CHECK_FALSE(std::get<engine::BatchReport>(decoded).measured);
  CHECK(fixture.resources.samples.find(14));
}

TEST_CASE("a loader says how many lengths the index knew, and what is wrong with it", "[actors]") {
  Fixture fixture;
  fixture.measure(3, {4, 9});
  auto told = fixture.next();
  REQUIRE(std::holds_alternative<engine::BatchReport>(told));
  CHECK(std::get<engine::BatchReport>(told).indexed == 0);
  fixture.resources.setup.lengths->correct(0, {}, {}, "a.jpg is larger");
  fixture.measure(4, {4, 9, 6});  // The last one says what the first one does.
  told = fixture.next();
  REQUIRE(std::holds_alternative<engine::BatchReport>(told));
  const auto& report = std::get<engine::BatchReport>(told);
  CHECK(report.indexed == 3);
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes.front().find("a.jpg is larger") != std::string::npos);
}

TEST_CASE("an empty share is answered too", "[actors]") {
  Fixture fixture;
  fixture.order(0, {});
  const auto told = fixture.next();
  REQUIRE(std::holds_alternative<engine::BatchReport>(told));
  CHECK(std::get<engine::BatchReport>(told).samples.empty());
}

TEST_CASE("a batch may be ordered again for a new configuration", "[actors]") {
  Fixture fixture;
  fixture.order(0, {0, 1}, 1);
  fixture.order(0, {1, 2}, 2);
  // The first may have been done before the second was heard of; it is then of the old number.
  for (bool newer = false; !newer;) {
    const auto told = fixture.next();
    REQUIRE(std::holds_alternative<engine::BatchReport>(told));
    const auto& report = std::get<engine::BatchReport>(told);
    newer = report.epoch_number == 2;
    CHECK(report.samples.at(0).id == (newer ? "s1" : "s0"));
  }
}

TEST_CASE("an order that cannot be met is a failure of the node", "[actors][errors]") {
  Fixture fixture;
  fixture.order(0, {10});
  const auto told = fixture.next();
  REQUIRE(std::holds_alternative<Error>(told));
  CHECK(std::get<Error>(told).message.find("position 10 of 10") != std::string::npos);
}

}  // namespace
}  // namespace troupe::actors
