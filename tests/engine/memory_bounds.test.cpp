#include "tests/torch_catch.hpp"

#include "engine/layout/choose_layout.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/llm_cap.hpp"
#include "scheduler/simulate/memory_bounds.hpp"

#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// Encoder and projector on one device, the llm on the other: 100 bytes of state each, and 10 bytes
/// of activations per sample.
struct Fixture {
  ParallelPlan plan;
  scheduler::SimulationCosts costs;

  Fixture() {
    auto job = tiny_job();
    job.parallel.layout.pipelines.resize(1);
    job.cluster.nodes = job.cluster.local_nodes = 2;
    plan = make_parallel_plan(prepare(job).value()).value();
    costs.state_bytes = [](StageId) { return 100.0; };
    costs.activation_bytes = [](StageId, const std::vector<std::int32_t>& samples) {
      return 10.0 * static_cast<double>(samples.size());
    };
  }
};

std::shared_ptr<const scheduler::RowFlow> flow_of(const ParallelPlan& plan,
                                                  const std::vector<SampleShape>& samples) {
  return std::make_shared<const scheduler::RowFlow>(plan.model, samples);
}

/// Where no rows go from stage to stage.
Result<std::vector<std::int32_t>> bounds_of(const ParallelPlan& plan,
                                            const scheduler::SimulationCosts& costs,
                                            Bytes device_memory,
                                            const std::vector<MicrobatchList>& microbatches,
                                            const std::string& schedule) {
  const std::vector<SampleShape> empty(16);
  return memory_bounds(plan, costs, device_memory, microbatches, schedule, *flow_of(plan, empty),
                       SampleUnits(empty, {}));
}

std::optional<double> cap_ms(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                             Bytes device_memory, ReplicaId llm,
                             const std::vector<std::int32_t>& samples, double llm_ms) {
  return llm_cap_ms(plan, costs, rooms_in_flight(plan, costs, device_memory), llm, samples, llm_ms);
}

/// A sample whose picture is 16 patches, 16 rows inside the encoder, and 4 of its 9 tokens.
SampleShape with_picture(const ParallelPlan& plan) {
  SampleShape shape;
  shape.media = {{ModuleId{0}, {{16, 16, 4, 4, 4}}}};
  shape.markers = {{ModuleId{0}, 2}};
  shape.llm_tokens = 9;
  CHECK(plan.model.modules[0].name == "vision");
  return shape;
}

TEST_CASE("rows that come for a part count with its activations", "[engine]") {
  auto job = tiny_job();
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", LayerRange{0, 1}}}},
                                    {1, 0, {{"vision", LayerRange{1, 3}}}},
                                    {2, 0, {{"llm", LayerRange{0, 2}}}},
                                    {3, 0, {{"llm", LayerRange{2, 4}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 4;
  auto plan = make_parallel_plan(prepare(job).value()).value();
  const Fixture fixture;
  SampleShape text;
  text.llm_tokens = 5;
  const std::vector<SampleShape> samples{with_picture(plan), text};
  const auto width = [&](int module) {
    return static_cast<double>(plan.model.modules[static_cast<std::size_t>(module)].hidden_width);
  };
  const auto bytes = [&](int stage) {
    return with_arriving_rows(fixture.costs, plan, flow_of(plan, samples))
        .activation_bytes(StageId{stage}, {0, 1});
  };
  // 10 for each of two samples, and four for each element that comes.
  CHECK(bytes(0) == 20);
  CHECK(bytes(1) == 20 + 4 * 16 * width(0));
  CHECK(bytes(2) == 20 + 4 * 4 * width(2));
  CHECK(bytes(3) == 20 + 4 * (9 + 5) * width(2));
  // A teacher's rows come to the llm's last stage: one per token of text.
  for (auto& module : plan.model.modules) module.output_width = 1000;
  plan.model.modules[1].kind = ModuleKind::teacher;
  CHECK(bytes(2) == 20);
  CHECK(bytes(3) == 20 + 4 * (9 + 5) * width(2) + 4 * (5 + 5) * 1000);
}

TEST_CASE("stages of one device share what their state leaves", "[engine]") {
  // Encoder and llm on one device: 2 x 100 of 280 bytes are state, 40 are left for each stage, and
  // microbatches of 10 and 20 bytes fit four times and twice.
  auto job = tiny_job();
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}}, {0, 0, {{"llm", {}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 1;
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  const Fixture fixture;
  const std::vector<MicrobatchList> cut{{{{{{0}}}}}, {{{{{0, 1}}}}}};
  CHECK((bounds_of(plan, fixture.costs, Bytes{280}, cut, "1f1b").value() ==
         std::vector<std::int32_t>{4, 2}));
}

/// Vision and the first of two stages of the llm on one device, the second on another. Microbatches
/// of vision keep 5 bytes for each sample, those of the llm 20.
struct Phased : Fixture {
  using Bounds = std::vector<std::int32_t>;

  Phased() {
    auto job = tiny_job();
    job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}},
                                      {0, 0, {{"llm", LayerRange{0, 2}}}},
                                      {1, 0, {{"llm", LayerRange{2, 4}}}}}};
    job.cluster.nodes = job.cluster.local_nodes = 2;
    plan = make_parallel_plan(prepare(job).value()).value();
    costs.activation_bytes = [](StageId stage, const std::vector<std::int32_t>& samples) {
      return (stage.value == 0 ? 5.0 : 20.0) * static_cast<double>(samples.size());
    };
  }
  /// Where state leaves 50 bytes of the first device, and 150 of the other. Unit 16 is the picture
  /// of sample 2; rows weigh nothing.
  Bounds bounds(const std::string& schedule, const std::vector<std::vector<std::int32_t>>& vision,
                const std::vector<std::vector<std::int32_t>>& llm) const {
    std::vector<MicrobatchList> cut(2);
    for (const auto& samples : vision) cut[0].push_back({{{samples}}});
    for (const auto& samples : llm) cut[1].push_back({{{samples}}});
    const std::vector<SampleShape> samples(16, with_picture(plan));
    const std::vector<SamplePiece> pieces{{2, ModuleId{0}, 0, 1}};
    const SampleUnits units(samples, pieces);
    auto light = costs;
    light.bytes_per_element = 0;
    return memory_bounds(plan, light, Bytes{250}, cut, schedule,
                         scheduler::RowFlow(plan.model, units.shapes()), units)
        .value();
  }
};

TEST_CASE("in phases an llm short of memory has what encoders can spare", "[engine]") {
  const Phased phased;
  const std::vector<std::vector<std::int32_t>> six{{0}, {1}, {2}, {3}, {4}, {5}};
  // 25 bytes for each.
  CHECK((phased.bounds("1f1b", six, six) == Phased::Bounds{5, 1, 7}));
  // Two of the llm's in flight leave ten bytes, two of vision's: three windows, 3 + 3 / 2 round
  // trips. One would take 1 + 5. Nothing follows the second stage.
  for (const std::string schedule : {"three-phase", "dip"})
    CHECK((phased.bounds(schedule, six, six) == Phased::Bounds{2, 2, 1}));
  // So it is where two of the llm's are one of vision's, and with one of text alone: no window
  // waits for another.
  CHECK((phased.bounds("dip", {{0, 1}, {2, 3}}, {{0}, {1}, {8}, {2}, {3}}) ==
         Phased::Bounds{1, 2, 1}));
}

TEST_CASE("of a device's room windows that cannot be cut have theirs first", "[engine]") {
  const Phased phased;
  const auto bounds = [&](const std::vector<std::vector<std::int32_t>>& vision,
                          const std::vector<std::vector<std::int32_t>>& llm) {
    return phased.bounds("three-phase", vision, llm);
  };
  const std::vector<std::vector<std::int32_t>> four{{0}, {1}, {2}, {3}};
  // Two of the llm's in flight leave ten bytes, two of vision's, and one leaves six.
  CHECK((bounds(four, four) == Phased::Bounds{2, 2, 1}));
  // Samples 1 and 2 are trained the other way round: two are enough for that.
  CHECK((bounds(four, {{0}, {2}, {1}, {3}}) == Phased::Bounds{2, 2, 1}));
  // Of 3, 2 and 1 all three are kept from the first to the last; and where 0 waits for the third.
  CHECK((bounds(four, {{0}, {3}, {2}, {1}}) == Phased::Bounds{6, 1, 1}));
  CHECK((bounds(four, {{1}, {2}, {0}, {3}}) == Phased::Bounds{6, 1, 1}));
  // One of 40 bytes leaves two of vision's. No order has room for four, and none is promised it.
  CHECK((bounds(four, {{1}, {2}, {0, 3}}) == Phased::Bounds{2, 1, 1}));
  // Text waits for nobody.
  CHECK((bounds({{0}, {1}}, {{5}, {0}, {6}, {1}}) == Phased::Bounds{2, 2, 1}));
  // A piece is trained where its sample is.
  CHECK((bounds({{16}, {1}, {0}}, {{0}, {1}, {2}}) == Phased::Bounds{6, 1, 1}));
  CHECK((bounds({{0}, {1}, {16}}, {{0}, {1}, {2}}) == Phased::Bounds{2, 2, 1}));
}

TEST_CASE("an encoder with room for all of its microbatches makes no window narrower", "[engine]") {
  // Two encoders of four and of two microbatches, the second beside the llm that has them all.
  const Fixture fixture;
  const std::vector<HandReplica> replicas{{{"vision"}, {{0, 0, {{"vision", {}}}}}},
                                          {{"vision"}, {{0, 1, {{"vision", {}}}}}},
                                          {{"llm"}, {{0, 1, {{"llm", {}}}}}}};
  const auto model = prepare(tiny_job()).value().model;
  const auto plan = scheduler::place_by_hand(model, {{}, replicas}, {1, 2}).value();
  std::vector<MicrobatchList> cut(3);
  for (const std::int32_t sample : {0, 1, 2, 3}) cut[0].push_back({{{{sample}}}});
  for (const std::int32_t sample : {4, 5}) cut[1].push_back({{{{sample}}}});
  for (const std::int32_t sample : {0, 4, 1, 5, 2, 3}) cut[2].push_back({{{{sample}}}});
  // Beside one of the llm's there is room for both of the second's in 30 bytes, not in 20.
  const auto roomy = bounds_of(plan, fixture.costs, Bytes{230}, cut, "three-phase");
  CHECK((roomy.value() == Phased::Bounds{13, 4, 1}));
  const auto narrow = bounds_of(plan, fixture.costs, Bytes{220}, cut, "three-phase");
  CHECK((narrow.value() == Phased::Bounds{12, 1, 1}));
}

/// In three phases, of six microbatches with a picture each, where state leaves `room` times what
/// its rows are as they enter the llm. Vision keeps as much of each, a stage of the llm twice that
/// beside rows that come.
Phased::Bounds bounds_of_pictures(Phased phased, double room) {
  const std::vector<SampleShape> samples(6, with_picture(phased.plan));
  const double rows = 4.0 * 4.0 * static_cast<double>(phased.plan.model.modules[2].hidden_width);
  phased.costs.activation_bytes = [rows](StageId stage, const std::vector<std::int32_t>& part) {
    return (stage.value == 0 ? rows : 2 * rows) * static_cast<double>(part.size());
  };
  const auto flow = flow_of(phased.plan, samples);
  const auto costs = with_arriving_rows(phased.costs, phased.plan, flow);
  std::vector<MicrobatchList> cut(2);
  for (std::int32_t sample = 0; sample < 6; ++sample)
    for (auto& list : cut) list.push_back({{{{sample}}}});
  const auto bytes = static_cast<std::int64_t>(200 + room * rows);
  return memory_bounds(phased.plan, costs, Bytes{bytes}, cut, "three-phase", *flow,
                       SampleUnits(samples, {}))
      .value();
}

TEST_CASE("rows of a window that wait for the llm take room, as gradients for encoders do",
          "[engine]") {
  const Phased phased;
  // Two of the llm's in flight are 4 of 14: five of vision's are as much as rows that wait for the
  // llm. All six in one window would be 12.
  CHECK((bounds_of_pictures(phased, 14) == Phased::Bounds{5, 2, 1}));
  CHECK((bounds_of_pictures(phased, 16) == Phased::Bounds{6, 2, 1}));
}

TEST_CASE("gradients for a window take room also where its rows wait on another device",
          "[engine]") {
  // Vision beside the llm's last stage, which has 2 and nine rows of text, 2.25, in flight. Of the
  // 6 that are left each microbatch of vision takes one, and its gradients another.
  auto job = tiny_job();
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}},
                                    {1, 0, {{"llm", LayerRange{0, 2}}}},
                                    {0, 0, {{"llm", LayerRange{2, 4}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 2;
  Phased phased;
  phased.plan = make_parallel_plan(prepare(job).value()).value();
  CHECK((bounds_of_pictures(phased, 10.25) == Phased::Bounds{3, 2, 1}));
  // To frozen modules none come.
  for (std::size_t m : {0U, 1U}) phased.plan.model.modules[m].freeze = true;
  CHECK((bounds_of_pictures(phased, 10.25) == Phased::Bounds{6, 2, 1}));
}

TEST_CASE("parameters that leave give their room to the llm of their pipeline", "[engine]") {
  // 80 bytes are left, and 40 of the encoder's 100 leave: the llm's 20 leave the encoder all 80.
  auto job = tiny_job();
  job.scheduler.schedule = "three-phase";
  job.scheduler.offload_encoders = "parameters";
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}}, {0, 0, {{"llm", {}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 1;
  auto plan = make_parallel_plan(prepare(job).value()).value();
  Fixture fixture;
  fixture.costs.parameter_bytes = [&plan](StageId stage) {
    return plan.is_llm(stage) ? scheduler::StageParameters{} : scheduler::StageParameters{40, 40};
  };
  const auto bounds = [&] {
    std::vector<MicrobatchList> cut;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r)
      cut.push_back(plan.is_llm(ReplicaId{r}) ? MicrobatchList{{{{{0, 1}}}}}
                                              : MicrobatchList{{{{{0}}}}});
    return bounds_of(plan, fixture.costs, Bytes{280}, cut, job.scheduler.schedule).value();
  };
  CHECK((bounds() == std::vector<std::int32_t>{8, 1}));
  // 120 of 30 bytes for 6 ms.
  CHECK(*cap_ms(plan, fixture.costs, Bytes{280}, ReplicaId{1}, {0, 1, 2}, 6) == 24);
  // Beside an encoder of others the llm may be in the middle of a batch when it begins.
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}},
                                   {{1, 0, {{"vision", {}}}}, {0, 0, {{"llm", {}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 2;
  plan = make_parallel_plan(prepare(job).value()).value();
  const auto apart = bounds();
  for (std::size_t s = 0; s < apart.size(); ++s)
    CHECK(apart[s] == (plan.is_llm(StageId{s}) ? 1 : 6));
}

TEST_CASE("stages that share some of their devices leave what the fullest one has", "[engine]") {
  // The encoder on both devices, an llm replica on each: no device keeps the state of both.
  const Fixture fixture;
  const HandLayout layout{
      {},
      {{{"vision"}, {{.node = 0, .runs = {{"vision", {}}}, .devices = {0, 1}, .tp = 2}}},
       {{"llm"}, {{0, 0, {{"llm", {}}}}}},
       {{"llm"}, {{0, 1, {{"llm", {}}}}}}}};
  const auto plan =
      scheduler::place_by_hand(prepare(tiny_job()).value().model, layout, {1, 2}).value();
  // 240 bytes less twice 100 are 40: 40 of 30 bytes for 6 ms are 8.
  CHECK(*cap_ms(plan, fixture.costs, Bytes{240}, ReplicaId{1}, {0, 1, 2}, 6) == 8);
  // Both stages of a device have half of it, which takes two microbatches of 10 bytes.
  const std::vector<MicrobatchList> cut{{{{{{0}}}}}, {{{{{0}}}}}, {{{{{0}}}}}};
  CHECK((bounds_of(plan, fixture.costs, Bytes{240}, cut, "1f1b").value() ==
         std::vector<std::int32_t>{2, 2, 2}));
  // In phases an llm of one stage has one in flight.
  CHECK((bounds_of(plan, fixture.costs, Bytes{240}, cut, "three-phase").value() ==
         std::vector<std::int32_t>{3, 1, 1}));
}

TEST_CASE("a stage runs ahead as far as its largest microbatch fits", "[engine]") {
  const Fixture fixture;
  // The encoder's largest has two parts of one sample, 20 bytes; the llm's three samples, 30.
  const std::vector<MicrobatchList> cut{{{{{{0}}, {{1}}}}, {{{{2}}}}}, {{{{{0, 1, 2}}}}}};
  using Bounds = std::vector<std::int32_t>;
  const auto bounds = [&](std::int64_t memory) {
    return bounds_of(fixture.plan, fixture.costs, Bytes{memory}, cut, "1f1b");
  };
  CHECK((bounds(165).value() == Bounds{3, 2}));
  CHECK((bounds(130).value() == Bounds{1, 1}));
}

TEST_CASE("of what is offloaded one microbatch at a time has room", "[engine]") {
  Fixture fixture;
  fixture.costs.offloaded_bytes = [](StageId stage, const std::vector<std::int32_t>& samples) {
    return stage.value == 0 ? 8.0 * static_cast<double>(samples.size()) : 0.0;
  };
  const std::vector<MicrobatchList> cut{{{{{{0, 1}}}}}, {{{{{0, 1, 2}}}}}};
  // Of 65 bytes the encoder's 16 that move are there once, and 4 stay of each: (65 - 16) / 4.
  const auto bounds = [&](const std::string& schedule) {
    return bounds_of(fixture.plan, fixture.costs, Bytes{165}, cut, schedule).value();
  };
  CHECK((bounds("1f1b") == std::vector<std::int32_t>{12, 2}));
  CHECK((bounds("three-phase") == std::vector<std::int32_t>{12, 1}));
}

TEST_CASE("outputs stay where all else of an encoder's part is offloaded", "[engine]") {
  const Fixture fixture;
  auto plan = fixture.plan;
  SampleShape text;
  text.llm_tokens = 5;
  const std::vector<SampleShape> samples{with_picture(plan), text};
  auto costs = fixture.costs;
  costs.activation_bytes = [](StageId, const auto&) { return 100'000.0; };
  const auto bytes = [&](int stage) {
    return with_offloading(costs, plan, flow_of(plan, samples))
        .offloaded_bytes(StageId{stage}, {0, 1});
  };
  // Four rows of a picture leave the encoder, and its projector, at four bytes an element.
  const double vision = 4.0 * static_cast<double>(plan.model.modules[0].output_width);
  const double projector = 4.0 * static_cast<double>(plan.model.modules[1].output_width);
  CHECK(bytes(0) == 100'000 - 4 * (vision + projector));
  CHECK(bytes(1) == 0);  // The llm.
  // What has no backward is nothing that is kept.
  plan.model.modules[0].freeze = true;
  CHECK(bytes(0) == 100'000 - 4 * projector);
  costs.activation_bytes = [](StageId, const auto&) { return 1.0; };
  CHECK(bytes(0) == 0);
}

TEST_CASE("a microbatch that does not fit alone is named, on either side", "[engine]") {
  const Fixture fixture;
  // State leaves 25 of 125 bytes. The llm's second microbatch keeps 30, then the encoder's first.
  const auto sides = [&](std::size_t encoder, std::size_t last) {
    std::vector<MicrobatchList> cut(2);
    cut[0] = {{{{std::vector<std::int32_t>(encoder, 0)}}}};
    cut[1] = {{{{{0}}}}, {{{std::vector<std::int32_t>(last, 0)}}}};
    return bounds_of(fixture.plan, fixture.costs, Bytes{125}, cut, "1f1b");
  };
  CHECK(sides(2, 2).ok());
  const auto late = sides(2, 3);
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == Errc::infeasible);
  CHECK(late.error().message.find("microbatch 1 of pipeline 0") != std::string::npos);
  CHECK(late.error().message.find("on stage 1") != std::string::npos);
  const auto early = sides(3, 2);
  REQUIRE_FALSE(early.ok());
  CHECK(early.error().message.find("microbatch 0 of pipeline 0") != std::string::npos);
  CHECK(early.error().message.find("on stage 0") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
