#include "tests/torch_catch.hpp"

#include "actors/head/recorder_actor.hpp"

#include <ATen/ops/full.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/layout/choose_layout.hpp"
#include "engine/run/head_memory_file.hpp"
#include "runtime/observe/recorded_trace.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/actors/test_system.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/small_files.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A recorder (not detached here) of a run folder, and the transports of the head and one node.
class Fixture {
 public:
  Fixture() {
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    options.self = 0;
    node = transport::create_transport("inproc", options).value();
    options.self = 1;
    head = transport::create_transport("inproc", options).value();
    REQUIRE(node->connect(1, head->address()).ok());
    REQUIRE(head->connect(0, node->address()).ok());
    const auto logger =
        observe::Logger::create(nullptr, {.node_name = "head", .file = scratch_ / "log"}).value();
    auto folder = std::make_shared<engine::RunFolder>(
        engine::RunFolder::create(scratch_ / "run", "").value());
    supervisor_ = system.get().spawn(fake_supervisor, &told);
    actor = system.get().spawn(recorder, folder, &console_, logger, observe::TrainingGoal{10, 0},
                               head.get(), supervisor_);
  }

  ~Fixture() {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    caf::anon_send_exit(supervisor_, caf::exit_reason::kill);
    system.run();
  }

  template <class... Values>
  void tell(Values&&... values) {
    caf::anon_send(actor, std::forward<Values>(values)...);
    system.run();
  }

  std::string written(const std::string& name) const { return read(scratch_ / "run" / name); }
  std::string log() const { return read(scratch_ / "log"); }
  std::filesystem::path run() const { return scratch_ / "run"; }

  TestSystem system;
  SupervisorSeen told;
  std::unique_ptr<transport::Transport> node, head;
  RecorderActor actor;

 private:
  testing::ScratchFolder scratch_;
  observe::Console console_{observe::ConsoleOptions{}};
  SupervisorActor supervisor_;
};

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a step leaves its metrics, its samples and a line in the log", "[actors]") {
  Fixture fixture;
  StepRecord record;
  record.metrics.step = 3;
  record.metrics.loss = 1.5;
  record.ids = {"s1", "s0"};
  fixture.tell(std::make_shared<const StepRecord>(record));

  CHECK(says(fixture.written("metrics.jsonl"), "\"loss\":1.5"));
  CHECK(fixture.written("samples.jsonl") == "{\"step\":3,\"ids\":[\"s1\",\"s0\"]}\n");
  CHECK(says(fixture.log(), "step 3/10  loss 1.5"));
}

TEST_CASE("what another head is to know is written with a step", "[actors]") {
  Fixture fixture;
  StepRecord record;
  record.for_next_head =
      std::make_shared<const HeadMemory>(HeadMemory{2, {}, {{NodeId{1}, 3, 1, 1}}});
  fixture.tell(std::make_shared<const StepRecord>(record));
  CHECK((engine::read_head_memory(fixture.run()) == *record.for_next_head));
  std::filesystem::remove(fixture.run() / "learned.json");
  std::filesystem::create_directories(fixture.run() / "learned.json" / "in the way");
  fixture.tell(std::make_shared<const StepRecord>(record));  // The job trains on.
  CHECK((says(fixture.log(), "slow nodes anew") && fixture.told.failures.empty()));
}

TEST_CASE("the log tells how many lengths of an epoch came from the index", "[actors]") {
  Fixture fixture;
  const auto tell = [&](std::int64_t epoch, std::int64_t measured, std::int64_t indexed) {
    engine::PlannedBatch batch;
    batch.span.epoch = epoch;
    batch.measured = measured;
    batch.indexed = indexed;
    batch.notes = {"lengths are not kept"};
    fixture.tell(std::make_shared<const engine::PlannedBatch>(batch));
  };
  tell(0, 16, 0);
  tell(0, 8, 2);
  CHECK_FALSE(says(fixture.log(), "from the index"));
  tell(1, 16, 16);
  CHECK(says(fixture.log(), "lengths of epoch 1: of 24 samples, 2 from the index"));
  fixture.tell(finish_atom::value);
  CHECK(says(fixture.log(), "lengths of epoch 2: of 16 samples, 16 from the index"));
  const std::string log = fixture.log();
  CHECK(log.find("not kept") == log.rfind("not kept"));  // Once, whoever found it.
  CHECK(says(log, "not kept"));
}

TEST_CASE("the log says once per cause why phases are not exchanged, and what helps", "[actors]") {
  Fixture fixture;
  const auto tell = [&](std::int64_t step, const std::string& where, const std::string& message) {
    engine::PlannedBatch batch;
    batch.iteration.step = step, batch.prediction.exchanged = step == 4;  // Of other phases.
    if (!where.empty())
      batch.prediction.exchange_refused = Error{Errc::infeasible, message, where, "allow more"};
    fixture.tell(std::make_shared<const engine::PlannedBatch>(batch));
  };
  tell(1, "", "");
  CHECK_FALSE(says(fixture.log(), "balancer.exchange"));
  tell(2, "max_in_flight", "stage 0 has 3");
  tell(3, "max_in_flight", "stage 1 has 5");
  tell(4, "cluster.device_memory_gib", "microbatch 2 keeps 7");
  const std::string log = fixture.log();
  CHECK((says(log, "encoders do not share step 2") && says(log, "not all encoders share step 4")));
  CHECK(says(log, "stage 0 has 3"));
  CHECK(says(log, "allow more"));
  CHECK_FALSE(says(log, "stage 1 has 5"));
  CHECK(says(log, "microbatch 2 keeps 7"));
}

TEST_CASE("a disk that is full for a while costs no line, and is told once", "[actors][errors]") {
  Fixture fixture;
  const auto write = [&](std::int64_t step) {
    StepRecord record;
    record.metrics.step = step;
    record.ids = {"s" + std::to_string(step)};
    fixture.tell(std::make_shared<const StepRecord>(record));
  };
  write(1);
  const std::string first = fixture.written("metrics.jsonl");
  {
    const testing::SmallFiles full(first.size() + 10);  // In the middle of a line.
    write(2);
    write(3);
    fixture.tell(std::make_shared<const observe::RunEvent>());
    CHECK(fixture.written("metrics.jsonl").size() == first.size() + 10);
  }
  CHECK(fixture.told.failures.empty());
  CHECK_FALSE(says(fixture.log(), "no line is missing"));
  fixture.tell(save_atom::value);
  const std::string all = fixture.written("metrics.jsonl"), log = fixture.log();
  CHECK(std::count(all.begin(), all.end(), '\n') == 3);
  for (int step = 1; step <= 3; ++step) CHECK(says(all, "{\"step\":" + std::to_string(step) + ","));
  CHECK(says(fixture.written("samples.jsonl"), "{\"step\":3,\"ids\":[\"s3\"]}\n"));
  CHECK(fixture.written("events.jsonl").ends_with("}\n"));
  CHECK(says(log, "training goes on; lines are kept"));
  CHECK(log.find("training goes on") == log.rfind("training goes on"));
  CHECK(says(log, "no line is missing"));
}

TEST_CASE("events wait for a file that cannot be opened yet", "[actors][errors]") {
  Fixture fixture;
  std::filesystem::create_directories(fixture.run() / "events.jsonl");  // In its place.
  observe::RunEvent event;
  event.kind = "lost";
  fixture.tell(std::make_shared<const observe::RunEvent>(event));
  std::filesystem::remove(fixture.run() / "events.jsonl");
  fixture.tell(save_atom::value);
  CHECK(says(fixture.written("events.jsonl"), "\"lost\""));
  CHECK(fixture.told.failures.empty());
}

TEST_CASE("an event is a mark in the trace, where it began", "[actors]") {
  Fixture fixture;
  const auto setup = engine::prepare(engine::tiny_job()).value();
  const Configuration configuration{1, engine::make_parallel_plan(setup).value(), {}};
  fixture.tell(begin_atom::value, configuration);
  const auto event_of = [](const char* kind, double replay_ms, bool has_phases) {
    observe::RunEvent event;
    event.step = 4;
    event.kind = kind;
    event.nodes = {NodeId{1}};
    event.replay_ms = replay_ms;
    event.has_phases = has_phases;
    return std::make_shared<const observe::RunEvent>(event);
  };
  fixture.tell(event_of("checkpoint", 0, true));
  fixture.tell(event_of("slow", 0, true));
  fixture.tell(event_of("lost", 600'000, true));  // Began before the trace did.
  fixture.tell(event_of("drained", 0, false));    // In the same change.
  std::map<std::string, double> marks;
  for (const auto& entry : nlohmann::json::parse(fixture.written("trace.json")))
    if (entry["ph"] == "i") {
      CHECK(entry["s"] == "g");
      CHECK(entry["args"]["step"] == 4);
      marks[entry["name"]] = entry["ts"];
    }
  REQUIRE(marks.size() == 3);
  CHECK(marks.at("slow: node 1") > 0);
  CHECK(marks.at("lost: node 1") == 0);
  CHECK(marks.at("drained: node 1") == 0);
}

TEST_CASE("a trace that cannot be written stays as it is, and the job goes on",
          "[actors][errors]") {
  Fixture fixture;
  const auto setup = engine::prepare(engine::tiny_job()).value();
  const Configuration configuration{1, engine::make_parallel_plan(setup).value(), {}};
  fixture.tell(begin_atom::value, configuration);
  StepRecord record;
  record.metrics.step = 1;
  record.events.resize(1);
  fixture.tell(std::make_shared<const StepRecord>(record));
  const auto before = fixture.written("trace.json");
  const std::string slice = "\"ph\":\"X\"";
  REQUIRE(says(before, slice));
  {
    const testing::SmallFiles full(before.size());
    record.events.resize(2000);
    fixture.tell(std::make_shared<const StepRecord>(record));
  }
  fixture.tell(begin_atom::value, configuration);
  CHECK(says(fixture.written("trace.json"), slice));
  CHECK(says(fixture.log(), "no traces from here on"));
  CHECK(fixture.told.failures.empty());
}

TEST_CASE("lines that the disk never takes end the job", "[actors][errors]") {
  Fixture fixture;
  engine::PlannedBatch batch;
  batch.dropped.push_back({5, {"", data::BadKind::missing_file, "x.png", "", "no file", ""}});
  const testing::SmallFiles full(0);
  for (int i = 0; i < 3 && fixture.told.failures.empty(); ++i) {
    batch.dropped[0].why.id = std::string(30'000'000, static_cast<char>('a' + i));
    fixture.tell(std::make_shared<const engine::PlannedBatch>(batch));
    CHECK(fixture.told.failures.size() == (i < 2 ? 0U : 1U));
  }
  REQUIRE(fixture.told.failures.size() == 1);
  CHECK(fixture.told.failures[0].code == Errc::io_failed);
}

TEST_CASE("a skipped step names the samples of its loss", "[actors]") {
  Fixture fixture;
  StepRecord record;
  record.metrics.step = 4;
  record.metrics.skipped = "the loss is not finite";
  for (int i = 0; i < 9; ++i) record.nonfinite_samples.push_back("s" + std::to_string(i));
  fixture.tell(std::make_shared<const StepRecord>(record));

  CHECK(says(fixture.log(), "warning: step 4/10  skipped: the loss is not finite"));
  CHECK(says(fixture.log(), "loss not finite for samples s0, s1, s2, s3, s4, s5, s6, s7\n"));
}

TEST_CASE("an exception ends the recorder, and the supervisor hears why", "[actors][errors]") {
  Fixture fixture;
  const Offers offers{
      NodeId{0}, 1, {{"llm.w", 6, {std::int64_t{1} << 60}, 0}}};  // No memory for it.
  fixture.tell(collect_atom::value, Collection::parameters, EpochNumber{1},
               std::make_shared<const std::vector<Offers>>(1, offers));
  REQUIRE(fixture.told.failures.size() == 1);
  const Error& error = fixture.told.failures.front();
  CHECK(error.code == Errc::internal);
  CHECK(says(error.message, "the recorder stopped: "));
  CHECK(!says(error.message, "\n"));
  CHECK(!error.fix.empty());
}

TEST_CASE("a dropped sample is listed and warned of", "[actors]") {
  Fixture fixture;
  engine::PlannedBatch batch;
  batch.dropped.push_back({5, {"s5", data::BadKind::missing_file, "x.png", "", "no file", ""}});
  fixture.tell(std::make_shared<const engine::PlannedBatch>(batch));
  CHECK(says(fixture.written("bad_samples.jsonl"), "\"s5\""));
  CHECK(says(fixture.log(), "warning: dropped"));
}

TEST_CASE("a predicted step is written beside the measured one, from the same begin", "[actors]") {
  Fixture fixture;
  const auto setup = engine::prepare(engine::tiny_job()).value();
  fixture.tell(begin_atom::value, Configuration{1, engine::make_parallel_plan(setup).value(), {}});
  CHECK(!std::filesystem::exists(fixture.run() / "predicted.json"));
  observe::TraceEvent event;
  event.step = 2;
  event.device = DeviceId{0};
  event.action.kind = ActionKind::commit;
  event.begin_ns = 1'000'000;
  event.end_ns = 3'000'000;
  StepRecord record;
  record.metrics.step = 2;
  record.prediction.events = {event};
  event.begin_ns = observe::trace_now_ns();
  event.end_ns = event.begin_ns + 4'000'000;
  record.events = {event};
  fixture.tell(std::make_shared<const StepRecord>(record));

  const auto slice = [&](const std::string& file) {
    for (const auto& entry : nlohmann::json::parse(fixture.written(file)))
      if (entry["ph"] == "X") return entry;
    return nlohmann::json{};
  };
  const auto measured = slice("trace.json"), predicted = slice("predicted.json");
  REQUIRE((measured.is_object() && predicted.is_object()));
  CHECK(predicted["name"] == measured["name"]);
  CHECK(predicted["dur"] == 2000.0);
  CHECK(measured["dur"] == 4000.0);
  CHECK(predicted["ts"].get<double>() == Catch::Approx(measured["ts"].get<double>() + 1000));
}

TEST_CASE("the end of a long run is in its trace", "[actors]") {
  Fixture fixture;
  const auto setup = engine::prepare(engine::tiny_job()).value();
  fixture.tell(begin_atom::value, Configuration{1, engine::make_parallel_plan(setup).value(), {}});
  // 600,000 actions; a hundred megabytes hold some 450,000 of these.
  constexpr std::int64_t kSteps = 2400, kActions = 250;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    StepRecord record;
    record.metrics.step = step;
    observe::TraceEvent event;
    event.step = step;
    event.device = DeviceId{0};
    event.action = {ActionKind::forward, StageId{0}, MicrobatchId{3}, PartId{0}, {}, {}};
    event.begin_ns = observe::trace_now_ns();
    event.end_ns = event.begin_ns + 1000;
    record.events.assign(kActions, event);
    fixture.tell(std::make_shared<const StepRecord>(std::move(record)));
  }
  const auto steps = observe::steps_in_trace(fixture.run() / "trace.json").value();
  CHECK(steps.back() == kSteps);
  CHECK(std::count_if(steps.begin(), steps.end(), [](auto x) { return x <= 100; }) == 100);
  CHECK(std::count_if(steps.begin(), steps.end(), [](auto x) { return x > kSteps - 20; }) == 20);
  CHECK(std::filesystem::file_size(fixture.run() / "trace.json") < 101'000'000);
  CHECK(says(fixture.log(), "it keeps those that 2 divides"));
}

TEST_CASE("what cannot be written ends the job, with one reason", "[actors][errors]") {
  Fixture fixture;
  const auto setup = engine::prepare(engine::tiny_job()).value();
  const Configuration configuration{1, engine::make_parallel_plan(setup).value(), {}};
  std::filesystem::remove_all(fixture.run());
  std::ofstream(fixture.run()) << "a file where the folder was";
  fixture.tell(begin_atom::value, configuration);
  fixture.tell(begin_atom::value, configuration);
  REQUIRE(fixture.told.failures.size() == 1);
  CHECK(fixture.told.failures[0].code == Errc::io_failed);
}

TEST_CASE("offered tensors are received and written as one model", "[actors]") {
  Fixture fixture;
  const std::vector<float> values{1, 2, 3};
  const auto tag = transport::make_tag(1, transport::TagKind::state,
                                       static_cast<std::uint64_t>(Collection::parameters), 9);
  fixture.node->send(1, tag, {values.data(), 12, nullptr});
  const auto offers = std::make_shared<const std::vector<Offers>>(std::vector<Offers>{
      {NodeId{0}, 1, {{"llm.weight", static_cast<std::uint8_t>(at::kFloat), {3}, 9}}}});
  fixture.tell(collect_atom::value, Collection::parameters, EpochNumber{1}, OffersPtr{offers});

  CHECK(fixture.told.failures.empty());
  const std::string file = fixture.written("model/model.safetensors");
  CHECK(says(file, "llm.weight"));
  CHECK(file.ends_with(std::string(reinterpret_cast<const char*>(values.data()), 12)));
}

TEST_CASE("each collection whose tensors do not come is told", "[actors][errors]") {
  Fixture fixture;
  fixture.node->disconnect(1, {Errc::transport_failed, "it ends", "", ""});
  for (const EpochNumber epoch : {1u, 2u, 3u}) {       // The second one is of other nodes.
    if (epoch == 3) fixture.head->drop_older_than(4);  // Another layout comes up.
    const auto offers = std::make_shared<const std::vector<Offers>>(std::vector<Offers>{
        {NodeId{0}, epoch, {{"llm.weight", static_cast<std::uint8_t>(at::kFloat), {3}, 9}}}});
    fixture.tell(collect_atom::value, Collection::parameters, epoch, OffersPtr{offers});
    CHECK(fixture.told.failures.size() == std::min<std::size_t>(epoch, 2));
  }
}

}  // namespace
}  // namespace troupe::actors
