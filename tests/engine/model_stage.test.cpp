#include "tests/torch_catch.hpp"

#include "engine/execution/device.hpp"
#include "engine/execution/model_stage.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/layout/choose_layout.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <algorithm>

#include "engine/state/seeded_store.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// The first pipeline of the tiny job, stage by stage: the encoder's and the llm's, without
/// executors between them.
struct Pair {
  JobSetup setup;
  ParallelPlan plan = make_parallel_plan(setup).value();
  SampleStore store;
  IterationPlan iteration;
  std::unique_ptr<ModelStage> encoder = build(StageId{0});
  std::unique_ptr<ModelStage> llm = build(StageId{1});

  explicit Pair(const job::Job& job = tiny_job()) : setup(prepare(job).value()) {
    iteration = plan_tiny_batch(setup, plan, store).value().iteration;
    REQUIRE(encoder->begin(iteration, store).ok());
    REQUIRE(llm->begin(iteration, store).ok());
  }

  // Stages keep the store's memory.
  StateStore kept_by(StageId stage) const {
    return seeded_store(setup, plan, plan.at(stage).devices.front()).value();
  }

  std::unique_ptr<ModelStage> build(StageId stage) const {
    return ModelStage::create(plan, stage, setup.modules(), setup.layers, kept_by(stage)).value();
  }

  /// The encoder's, for who runs them without the built-in stage.
  StageLayers encoder_layers() const {
    const auto kept = kept_by(StageId{0});
    return StageLayers::create({plan, StageId{0}, setup.modules(), setup.layers, kept}).value();
  }

  /// The message of an encoder's part to the llm; every part of the first microbatch has one.
  MessageId message_of(PartKey part) const {
    for (std::size_t i = 0; i < iteration.messages.size(); ++i) {
      const MessageEnd& from = iteration.messages[i].source;
      if (from.stage == StageId{0} && PartKey{from.microbatch, from.part} == part)
        return MessageId{i};
    }
    return {};
  }

  /// Forward of microbatch 0 on both stages; returns the message between them.
  MessageId forward() {
    REQUIRE(encoder->forward(kPart).ok());
    const MessageId message = message_of(kPart);
    REQUIRE(message.valid());
    llm->accept_rows(message, encoder->rows_for(message).value());
    REQUIRE(llm->forward(kPart).ok());
    return message;
  }

  /// The gradients of all groups that a stage holds, in the plan's order.
  std::vector<at::Tensor> gradients(ModelStage& stage, StageId id) const {
    std::vector<at::Tensor> all;
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const ParameterUse& holder : plan.groups[g].uses)
        if (holder.stage == id)
          all.push_back(stage.state(GroupId{g}, holder.layer).gradients().clone());
    return all;
  }

  static constexpr PartKey kPart{MicrobatchId{0}, PartId{0}};
};

/// How many elements are zero.
std::int64_t zeros_in(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const auto& tensor : tensors)
    count += tensor.numel() - tensor.count_nonzero().item<int64_t>();
  return count;
}

TEST_CASE("rows and gradients that came in are memory until their backward", "[engine]") {
  Pair pair;
  const MessageId message = pair.forward();
  REQUIRE(pair.llm->backward(Pair::kPart).ok());
  at::Tensor gradient = pair.llm->gradient_for(message).value();
  CHECK(pair.llm->activations() == Bytes{});

  const Bytes before = pair.encoder->activations();
  const auto bytes = static_cast<std::int64_t>(gradient.nbytes());
  REQUIRE(bytes > 0);
  pair.encoder->accept_gradient(message, std::move(gradient));
  CHECK(pair.encoder->activations() == before + Bytes{bytes});
  REQUIRE(pair.encoder->backward(Pair::kPart).ok());
  CHECK(pair.encoder->activations() == Bytes{});

  // Rows count on the other side, from the moment they are handed in.
  REQUIRE(pair.encoder->begin(pair.iteration, pair.store).ok());
  REQUIRE(pair.llm->begin(pair.iteration, pair.store).ok());
  REQUIRE(pair.encoder->forward(Pair::kPart).ok());
  pair.llm->accept_rows(message, pair.encoder->rows_for(message).value());
  CHECK(pair.llm->activations() == Bytes{bytes});
}

TEST_CASE("who runs a stage's layers itself gets what the built-in stage sends", "[engine]") {
  Pair pair;
  StageLayers layers = pair.encoder_layers();
  layers.begin(pair.iteration);
  CHECK(layers.incoming(Pair::kPart).empty());
  std::vector<at::Tensor> outputs;
  for (std::size_t run = 0; run < layers.runs().size(); ++run) {
    const auto batch = layers.encoder_batch(run, Pair::kPart, pair.store).value();
    CHECK(batch.needs_losses);  // Else a loss that a layer adds would be lost without a word.
    outputs.push_back(layers.input_rows(run, Pair::kPart, outputs, {}).value());
    if (batch.segments.empty()) continue;
    for (const auto& layer : layers.runs()[run].layers)
      outputs.back() = layer->forward(outputs.back(), batch);
  }
  REQUIRE(pair.encoder->forward(Pair::kPart).ok());
  const MessageId message = pair.message_of(Pair::kPart);
  REQUIRE(message.valid());
  const auto own = layers.rows_of(message, outputs);
  REQUIRE(own.ok());
  CHECK_FALSE(own.value().requires_grad());
  CHECK(at::equal(own.value(), pair.encoder->rows_for(message).value()));
  CHECK_FALSE(layers.rows_of(message, {}).ok());
}

TEST_CASE("gradients of other parts are not those of an output", "[engine]") {
  Pair pair;
  StageLayers layers = pair.encoder_layers();
  const MessageId own = pair.message_of(Pair::kPart);
  REQUIRE(own.valid());
  Message twin = pair.iteration.at(own);  // The same rows, of another part.
  twin.source.microbatch = MicrobatchId{1};
  const MessageId other{pair.iteration.messages.size()};
  const auto output = at::randn({twin.rows, twin.width});
  pair.iteration.messages.push_back(std::move(twin));
  layers.begin(pair.iteration);
  const std::size_t last = layers.runs().size() - 1;
  CHECK(layers.output_gradient(last, Pair::kPart, output, {{own, output}}).defined());
  CHECK_FALSE(layers.output_gradient(last, Pair::kPart, output, {{other, output}}).defined());
  CHECK_FALSE(layers.output_gradient(0, Pair::kPart, output, {{own, output}}).defined());
}

TEST_CASE("what a stage keeps of a message is taken once, and an error where it is not there",
          "[engine][errors]") {
  const MessageId id{3};
  std::map<MessageId, at::Tensor> kept{{id, at::randn({2, 2})}};
  CHECK(StageLayers::take(kept, id).ok());
  CHECK(kept.empty());
  const auto again = StageLayers::take(kept, id);
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code == Errc::internal);
  CHECK_FALSE(StageLayers::take_gradient(kept, id).ok());

  at::Tensor& rows = kept[id] = at::randn({2, 2}).requires_grad_(true);
  CHECK_FALSE(StageLayers::take_gradient(kept, id).ok());  // No backward has left one.
  REQUIRE(kept.size() == 1);
  const at::Tensor gradient = at::randn({2, 2});
  rows.mutable_grad() = gradient;
  const auto taken = StageLayers::take_gradient(kept, id);
  REQUIRE(taken.ok());
  CHECK(at::equal(taken.value(), gradient));
  CHECK(kept.empty());
}

TEST_CASE("a stage's traffic is its share of the iteration", "[engine]") {
  Pair pair;
  const StageTraffic encoder = traffic_of(pair.plan, pair.iteration, StageId{0});
  const StageTraffic llm = traffic_of(pair.plan, pair.iteration, StageId{1});
  REQUIRE_FALSE(encoder.parts.empty());
  CHECK_FALSE(encoder.backward.empty());
  CHECK(std::includes(encoder.parts.begin(), encoder.parts.end(), encoder.backward.begin(),
                      encoder.backward.end()));
  CHECK(encoder.incoming.empty());
  CHECK_FALSE(encoder.outgoing.empty());
  CHECK(llm.outgoing.empty());
  for (const auto& [part, messages] : encoder.outgoing)
    for (const MessageId id : messages) {
      CHECK(part_of(pair.iteration.at(id).source) == part);
      const auto there = llm.incoming.find(part_of(pair.iteration.at(id).destination));
      REQUIRE(there != llm.incoming.end());
      CHECK(std::count(there->second.begin(), there->second.end(), id) == 1);
    }
  pair.iteration.actions.clear();  // As where all samples are bad.
  CHECK(traffic_of(pair.plan, pair.iteration, StageId{0}).parts.empty());
}

TEST_CASE("rows that no gradient goes back to are let go of by the backward", "[engine]") {
  job::Job job = tiny_job();
  for (ModuleConfig& module : job.modules)
    if (module.kind != ModuleKind::llm) module.freeze = true;
  Pair pair(job);
  REQUIRE(pair.encoder->forward(Pair::kPart).ok());
  const MessageId message = pair.message_of(Pair::kPart);
  REQUIRE_FALSE(pair.iteration.at(message).has_backward);
  const at::Tensor rows = pair.encoder->rows_for(message).value().clone();
  pair.llm->accept_rows(message, rows);
  REQUIRE(pair.llm->forward(Pair::kPart).ok());
  CHECK(rows.use_count() > 1);
  REQUIRE(pair.llm->backward(Pair::kPart).ok());
  CHECK(rows.use_count() == 1);
}

TEST_CASE("input gradients come at once, weight gradients when they are asked for", "[engine]") {
  Pair whole, split;
  const MessageId message = whole.forward();
  REQUIRE(split.forward() == message);
  REQUIRE(whole.llm->backward(Pair::kPart).ok());
  const auto expected = whole.gradients(*whole.llm, StageId{1});

  REQUIRE(split.llm->backward_input(Pair::kPart).ok());
  // The gradient of the rows is there and can travel on.
  CHECK(at::equal(split.llm->gradient_for(message).value(),
                  whole.llm->gradient_for(message).value()));
  // All that a linear layer owes is still owed, and what it is computed from is still kept. What
  // is left (norms, embedding) is far less than a tenth of a block.
  const auto early = split.gradients(*split.llm, StageId{1});
  std::int64_t elements = 0;
  for (const auto& gradient : early) elements += gradient.numel();
  CHECK(10 * (zeros_in(early) - zeros_in(expected)) > elements);
  CHECK(split.llm->activations() > Bytes{});

  REQUIRE(split.llm->backward_weight(Pair::kPart).ok());
  const auto late = split.gradients(*split.llm, StageId{1});
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(late[i], expected[i]));
  CHECK(split.llm->activations() == Bytes{});
}

TEST_CASE("gradients find their samples in whatever order a message has them", "[engine]") {
  auto job = tiny_job();
  job.train.global_batch_size = 12;  // The first microbatch has samples 0 to 2, two with pictures.
  Pair plain(job), turned(job);
  const MessageId message = plain.message_of(Pair::kPart);
  auto& samples = turned.iteration.messages[message.index()].samples;
  REQUIRE(samples.size() == 2);
  std::swap(samples[0], samples[1]);
  const auto swapped = [](const at::Tensor& rows) {
    return at::cat({rows.narrow(0, 4, 4), rows.narrow(0, 0, 4)});
  };
  for (Pair* pair : {&plain, &turned}) REQUIRE(pair->encoder->forward(Pair::kPart).ok());
  const at::Tensor rows = plain.encoder->rows_for(message).value();
  CHECK(at::equal(turned.encoder->rows_for(message).value(), swapped(rows)));

  auto generator = at::detail::createCPUGenerator(5);
  const at::Tensor gradient = at::randn(rows.sizes(), generator, at::kDouble);
  plain.encoder->accept_gradient(message, gradient.clone());
  turned.encoder->accept_gradient(message, swapped(gradient));
  for (Pair* pair : {&plain, &turned}) REQUIRE(pair->encoder->backward(Pair::kPart).ok());
  const auto expected = plain.gradients(*plain.encoder, StageId{0});
  const auto found = turned.gradients(*turned.encoder, StageId{0});
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(found[i], expected[i]));
}

TEST_CASE("an offloaded part takes less of the device and has the same gradients", "[engine]") {
  Pair plain, moved;
  Action away;
  away.kind = ActionKind::offload;
  away.stage = StageId{0};
  away.microbatch = Pair::kPart.microbatch;
  away.part = Pair::kPart.part;
  moved.iteration.actions[0].push_back(away);
  REQUIRE(moved.encoder->begin(moved.iteration, moved.store).ok());
  const auto device = make_device({});
  CHECK_FALSE(moved.encoder->offload(Pair::kPart, *device).ok());
  const MessageId message = plain.forward();
  REQUIRE(moved.forward() == message);
  CHECK_FALSE(plain.encoder->offload(Pair::kPart, *device).ok());  // Its plan has none.

  const Bytes held = moved.encoder->activations();
  CHECK(held == plain.encoder->activations());
  const auto bytes = moved.encoder->offload(Pair::kPart, *device);
  REQUIRE(bytes.ok());
  CHECK(moved.encoder->activations() == held - bytes.value());
  // Outputs stay, and little else: for one, a table that several layers read.
  CHECK(3 * bytes.value().count() > 2 * held.count());
  REQUIRE(moved.encoder->rows_for(message).ok());
  CHECK(moved.encoder->fetch(Pair::kPart, *device).value() == bytes.value());
  CHECK(moved.encoder->activations() == held);

  for (Pair* pair : {&plain, &moved}) {
    REQUIRE(pair->llm->backward(Pair::kPart).ok());
    pair->encoder->accept_gradient(message, pair->llm->gradient_for(message).value());
  }
  CHECK_FALSE(moved.encoder->backward_input(Pair::kPart).ok());
  for (Pair* pair : {&plain, &moved}) REQUIRE(pair->encoder->backward(Pair::kPart).ok());
  CHECK(moved.encoder->activations() == Bytes{});
  const auto expected = plain.gradients(*plain.encoder, StageId{0});
  const auto found = moved.gradients(*moved.encoder, StageId{0});
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(found[i], expected[i]));
  CHECK_FALSE(moved.encoder->fetch(Pair::kPart, *device).ok());
}

TEST_CASE("weight gradients before input gradients are an error", "[engine][errors]") {
  Pair pair;
  pair.forward();
  CHECK_FALSE(pair.llm->backward_weight(Pair::kPart).ok());
}

}  // namespace
}  // namespace troupe::engine
