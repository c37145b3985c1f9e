#include "engine/setup/resume.hpp"
#include "models/llama/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/safetensors.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/torch_catch.hpp"

#include <ATen/ops/zeros.h>

#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <functional>
#include <string>

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

const DataIdentity kData{60, 7, {}};

/// Of data whose beginning is that of before, whatever follows.
std::uint64_t same_beginning(std::span<const std::int64_t> records) {
  std::int64_t sum = 0;
  for (const auto count : records) sum += count;
  return sum == 60 ? 7 : 0;
}

/// With data, as a job file must have them.
job::Job saved_job() {
  job::Job job = tiny_job();
  job.job.run_dir = "runs/job";
  job.data.sources = {{"llava", "samples.json", {}}};
  return job;
}

std::string toml_of(const job::Job& job) {
  job::LoadedJob loaded;
  loaded.job = job;
  return job::to_toml(loaded);
}

/// A checkpoint of step 4 of this job, all zeros, in one file.
state::Checkpoint save(const std::filesystem::path& folder, const job::Job& job,
                       const DataIdentity& data = kData) {
  const auto setup = prepare(job).value();
  state::CheckpointManifest manifest;
  manifest.dtype = job.train.dtype;
  manifest.progress.step = 4;
  manifest.progress.generation = 3;
  manifest.progress.data = data_order(job, data);
  manifest.progress.deals = {{3, {{1, 2}, {3, 4}}}};
  manifest.progress.learned.stages = {{"vision 0-1 on 0.0", {"vision"}, 1.5}};
  manifest.progress.learned.speed_steps = 2;
  manifest.progress.learned.samples = {{0, "vision", 64, 2, 4}};
  state::TensorMap tensors;
  for (std::size_t p = 0; p < setup.parameters.size(); ++p) {
    const ParameterInfo& info = setup.parameters[p];
    manifest.parameters.push_back(state::saved_as(info));
    for (const StateKind kind : {StateKind::value, StateKind::moments}) {
      if (kind == StateKind::moments && !info.trains) continue;
      const ShardKey key{ParameterId{p}, kind, whole_box(info.shape)};
      manifest.shards.push_back({key, 0});
      auto shape = info.shape;
      if (kind == StateKind::moments) shape.insert(shape.begin(), 2);
      tensors[state::tensor_name(manifest.parameters.back(), key)] = at::zeros(shape, at::kDouble);
    }
  }
  const auto partial = state::partial_folder(folder, 4, 1), file = partial / "state";
  REQUIRE(state::write_safetensors(file, tensors).ok());
  manifest.files = {{"state", static_cast<std::int64_t>(std::filesystem::file_size(file)),
                     state::sha256_of_file(file).value()}};
  const auto complete = state::checkpoint_folder(folder, 4);
  REQUIRE(state::complete_checkpoint(partial, complete, manifest, toml_of(job)).ok());
  return state::Checkpoint::open(complete).value();
}

TEST_CASE("a job goes on where its layout, lengths and rates have changed, and says so",
          "[engine]") {
  const testing::ScratchFolder scratch;
  const auto checkpoint = save(scratch.path(), saved_job());
  const auto same = resume_from(checkpoint, prepare(saved_job()).value(), kData, same_beginning);
  REQUIRE(same.ok());
  CHECK(job::changes_text(same.value().changes) == "");
  CHECK(same.value().progress.step == 4);
  CHECK(same.value().progress.deals.size() == 1);
  CHECK(same.value().progress.learned.stages.at(0).speed == 1.5);
  CHECK(same.value().folder.is_absolute());
  CHECK_FALSE(same.value().is_start());
  CHECK(ResumePoint{}.is_start());

  job::Job job = saved_job();
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 1;
  job.train.dtype = Dtype::fp32;
  job.train.duration.amount = 99;
  job.optimizer.lr = 0.125;
  job.scheduler.schedule = "zero-bubble";
  job.job.run_dir = "runs/moved";
  job.modules[0].init = "/runs/teacher";  // It has its values already.
  const auto other = resume_from(checkpoint, prepare(job).value(), kData, same_beginning);
  REQUIRE(other.ok());
  CHECK(other.value().progress.deals.empty());  // Of pipelines that are no more.
  const LearnedCosts& learned = other.value().progress.learned;
  CHECK(learned.stages.at(0).speed == 0);  // Of devices that may be others.
  CHECK(learned.speed_steps == 0);
  CHECK((learned.samples == same.value().progress.learned.samples));
  const std::string text = job::changes_text(other.value().changes);
  for (const char* part : {"cluster.nodes 4 -> 1", "optimizer.lr 0.001 -> 0.125",
                           "parallel.pipelines[1].stages", "train.dtype \"fp64\" -> \"fp32\"",
                           "scheduler.schedule \"1f1b\" -> \"zero-bubble\"", "-> 99"})
    CHECK_THAT(text, ContainsSubstring(part));
  for (const char* part : {"run_dir", "init"}) CHECK_THAT(text, !ContainsSubstring(part));
}

TEST_CASE("encoders of a medium in another order are another model", "[engine][errors]") {
  job::Job job = saved_job();
  ModuleConfig second = job.modules[0], projector = job.modules[1];
  second.name = "zoom";
  second.next = projector.name = "zoom_projector";
  job.modules.insert(job.modules.begin() + 1, {second, projector});
  for (auto& pipeline : job.parallel.layout.pipelines)
    pipeline[0].runs.insert(pipeline[0].runs.begin() + 1, {"zoom", {}});
  const testing::ScratchFolder scratch;
  const auto checkpoint = save(scratch.path(), job);
  CHECK(resume_from(checkpoint, prepare(job).value(), kData, same_beginning).ok());
  std::swap(job.modules[0], job.modules[1]);
  const auto refused = resume_from(checkpoint, prepare(job).value(), kData, same_beginning);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(to_string(refused.error()), ContainsSubstring("encoders in another order") &&
                                             ContainsSubstring("vision, zoom") &&
                                             ContainsSubstring("now zoom, vision"));
}

TEST_CASE("what may not change is refused by its key, with both values and the fix",
          "[engine][errors]") {
  const testing::ScratchFolder scratch;
  const auto checkpoint = save(scratch.path(), saved_job());
  const auto refused = [&](const std::function<void(job::Job&)>& change,
                           const DataIdentity& data = kData) {
    job::Job job = saved_job();
    change(job);
    const auto resumed = resume_from(checkpoint, prepare(job).value(), data, same_beginning);
    REQUIRE_FALSE(resumed.ok());
    CHECK(resumed.error().code == Errc::invalid_argument);
    CHECK_THAT(resumed.error().fix, ContainsSubstring("--fresh"));
    return to_string(resumed.error());
  };
  const auto nothing = [](job::Job&) {};
  CHECK_THAT(refused([](job::Job& x) { x.job.seed = 4; }),
             ContainsSubstring("job.seed") && ContainsSubstring("saved with 3, now 4"));
  CHECK_THAT(refused([](job::Job& x) { x.data.shuffle = false; }),
             ContainsSubstring("data.shuffle"));
  CHECK_THAT(refused([](job::Job& x) { x.train.global_batch_size = 8; }),
             ContainsSubstring("train.global_batch_size"));
  CHECK_THAT(refused(nothing, {59, 7, {}}),
             ContainsSubstring("fewer samples: saved with 60, now 59"));
  CHECK_THAT(refused(nothing, {60, 8, {}}), ContainsSubstring("other data"));
  CHECK_THAT(refused([](job::Job& x) { x.modules[0].freeze = true; }),
             ContainsSubstring("modules.vision.freeze") &&
                 ContainsSubstring("saved with false, now true"));
  CHECK_THAT(refused([](job::Job& x) { x.modules[2].attention = AttentionRule::modality; }),
             ContainsSubstring("modules.llm.attention") &&
                 ContainsSubstring("saved with \"causal\", now \"modality\""));
  CHECK_THAT(refused([](job::Job& x) {
               x.modules[2].config.edit<models::LlmConfig>().intermediate_size = 32;
             }),
             ContainsSubstring("modules.llm") && ContainsSubstring("[24, 16]"));
  CHECK_THAT(refused([](job::Job& x) {
               x.modules[2].config.edit<models::LlmConfig>().num_hidden_layers = 3;
               x.parallel.layout.pipelines[1][1].runs[0].layers = LayerRange{2, 5};
             }),
             ContainsSubstring("modules.llm") && ContainsSubstring("layers.2"));
  CHECK_THAT(
      refused([](job::Job& x) { x.modules[0].config.edit<models::VisionConfig>().depth = 2; }),
      ContainsSubstring("modules.vision"));
}

TEST_CASE("records that were appended are taken up by the first epoch that has not begun",
          "[engine]") {
  using Stretches = std::vector<SourceCounts>;
  const testing::ScratchFolder scratch;
  job::Job job = saved_job();
  const auto go_on = [&](const state::Checkpoint& checkpoint, const DataIdentity& data) {
    return resume_from(checkpoint, prepare(job).value(), data, same_beginning);
  };
  // Ten batches of six are an epoch; step 4 is within the first.
  const auto known = save(scratch / "known", job, {60, 7, {}, {40, 20}});
  auto grown = go_on(known, {70, 9, {}, {46, 24}});
  REQUIRE(grown.ok());
  CHECK(grown.value().appended == 10);
  const DataOrder& order = grown.value().progress.data;
  CHECK(order.records == 70);
  CHECK(order.hash == 9);
  CHECK((order.epochs == Stretches{{0, {40, 20}}, {1, {46, 24}}}));
  CHECK((data_order(job, {70, 9, {}, {46, 24}}, grown.value()) == order));
  CHECK(steps_per_epoch(order) == 0);

  const auto more = go_on(known, {65, 9, {}, {40, 20, 5}});  // A source of its own.
  REQUIRE(more.ok());
  CHECK((more.value().progress.data.epochs == Stretches{{0, {40, 20}}, {1, {40, 20, 5}}}));
  const auto same = go_on(known, {60, 7, {}, {40, 20}});
  REQUIRE(same.ok());
  CHECK(same.value().appended == 0);
  CHECK((same.value().progress.data.epochs == Stretches{{0, {40, 20}}}));
  CHECK(steps_per_epoch(same.value().progress.data) == 10);

  // Its division is not known, as of a checkpoint of an older build.
  const auto older = save(scratch / "older", job);
  grown = go_on(older, {61, 9, {}, {61}});
  REQUIRE(grown.ok());
  CHECK((grown.value().progress.data.epochs == Stretches{{0, {60}}, {1, {61}}}));
}

TEST_CASE("how a run added up is known from its own job file", "[engine]") {
  const testing::ScratchFolder scratch;
  job::Job job = saved_job();
  job.cluster.sums = "nccl-chain";
  const auto checkpoint = save(scratch.path(), job);
  CHECK(saved_sums(checkpoint.folder() / state::kCheckpointJobFile) == "nccl-chain");
  CHECK(saved_sums(scratch / "nowhere.toml").empty());
}

TEST_CASE("data that begin otherwise, or lack something, are refused", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  const job::Job job = saved_job();
  const auto checkpoint = save(scratch.path(), job, {60, 7, {}, {40, 20}});
  const auto refused = [&](const DataIdentity& data, const HashOfFirst& hash = same_beginning) {
    const auto resumed = resume_from(checkpoint, prepare(job).value(), data, hash);
    REQUIRE_FALSE(resumed.ok());
    CHECK_THAT(resumed.error().fix, ContainsSubstring("appended at the end of a source"));
    return to_string(resumed.error());
  };
  CHECK_THAT(
      refused({70, 9, {}, {46, 24}}, [](auto) { return 8; }),
      ContainsSubstring("data.sources") && ContainsSubstring("the first 60 are not the same"));
  CHECK_THAT(refused({70, 9, {}, {51, 19}}),
             ContainsSubstring("data.sources[1].json") && ContainsSubstring("20, now 19"));
  CHECK_THAT(refused({70, 9, {}, {70}}), ContainsSubstring("fewer sources"));
}

}  // namespace
}  // namespace troupe::engine
