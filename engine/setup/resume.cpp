#include "engine/setup/resume.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "models/family/registry.hpp"
#include "runtime/data/batches/epochs.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/model_words.hpp"

namespace troupe::engine {

namespace {

constexpr const char* kElse = "or begin anew with --fresh, which keeps this run beside it";

Error changed(const std::string& key, const std::string& what, const std::string& before,
              const std::string& now, const std::string& fix) {
  return {Errc::invalid_argument,
          "a job cannot go on with " + what + ": saved with " + before + ", now " + now, key,
          fix + ", " + kElse};
}

std::string yes_no(bool x) { return x ? "true" : "false"; }

Status check_order(const DataOrder& before, const DataOrder& now) {
  const std::string back = "set it back";
  if (before.seed != now.seed)
    return changed("job.seed", "another order of the data", std::to_string(before.seed),
                   std::to_string(now.seed), back);
  if (before.shuffle != now.shuffle)
    return changed("data.shuffle", "another order of the data", yes_no(before.shuffle),
                   yes_no(now.shuffle), back);
  if (before.batch_size != now.batch_size)
    return changed("train.global_batch_size", "another batch size",
                   std::to_string(before.batch_size), std::to_string(now.batch_size), back);
  return Done{};
}

constexpr const char* kSameData =
    "give it the data that it had (records may be appended at the end of a source)";

Error fewer(const std::string& key, std::int64_t before, std::int64_t now) {
  return changed(key, "fewer samples", std::to_string(before), std::to_string(now), kSameData);
}

/// The order from here on, where all records of before are the first ones of their sources now.
Result<DataOrder> continued_order(const DataOrder& before, DataOrder now, std::int64_t next_batch,
                                  const HashOfFirst& hash_of_first) {
  const data::Epochs epochs =
      before.epochs.empty() ? data::Epochs(before.records) : data::Epochs(before.epochs);
  const auto& had = epochs.stretches().back().records;
  const auto& has = now.epochs.back().records;
  if (had.size() > has.size() && before.records != now.records)
    return changed("data.sources", "fewer sources", std::to_string(had.size()),
                   std::to_string(has.size()), kSameData);
  for (std::size_t s = 0; had.size() > 1 && s < std::min(had.size(), has.size()); ++s)
    if (has[s] < had[s])
      return fewer("data.sources[" + std::to_string(s) + "].json", had[s], has[s]);
  if (now.records < before.records) return fewer("data.sources", before.records, now.records);
  const bool has_grown = now.records > before.records;
  if ((has_grown ? hash_of_first(had) : now.hash) != before.hash)
    return changed("data.sources", "other data", "samples of other ids, texts or media",
                   has_grown ? "the first " + std::to_string(before.records) + " are not the same"
                             : "as many, but not the same",
                   kSameData);
  if (has_grown)
    now.epochs = epochs.grown(epochs.first_untouched(next_batch, now.batch_size), has).stretches();
  else if (epochs.stretches().size() > 1)
    now.epochs = epochs.stretches();
  return now;
}

/// `modules.vision`, of the parameter `vision.blocks.0.attn.proj.weight`.
std::string module_key(const std::string& parameter) {
  return "modules." + parameter.substr(0, parameter.find('.'));
}

}  // namespace

Status check_model(const state::CheckpointManifest& saved,
                   const std::vector<ParameterInfo>& parameters) {
  std::map<std::string, const state::SavedParameter*> left;
  for (const auto& parameter : saved.parameters) left[parameter.name] = &parameter;
  const std::string another = "another model", fix = "set the module back";
  for (const ParameterInfo& info : parameters) {
    const auto found = left.extract(info.name);
    if (!found)
      return changed(module_key(info.name), another, "no parameter '" + info.name + "'",
                     "one of shape " + shape_text(info.shape), fix);
    const state::SavedParameter& before = *found.mapped();
    if (before.shape != info.shape)
      return changed(module_key(info.name), another,
                     "'" + info.name + "' of shape " + shape_text(before.shape),
                     shape_text(info.shape), fix);
    if (before.trains != info.trains)
      return changed(module_key(info.name) + ".freeze", "other modules frozen",
                     yes_no(!before.trains), yes_no(!info.trains), fix);
  }
  if (!left.empty())
    return changed(module_key(left.begin()->first), another,
                   "a parameter '" + left.begin()->first + "'", "without it", fix);
  return Done{};
}

namespace {

const char* word_of(AttentionRule rule) {
  return rule == AttentionRule::modality ? "\"modality\"" : "\"causal\"";
}

/// No parameter shows by which rule the llm attends.
Status check_attention(const job::Job& saved, const job::Job& now) {
  for (const ModuleConfig& before : saved.modules)
    for (const ModuleConfig& module : now.modules)
      if (module.name == before.name && module.attention != before.attention)
        return changed("modules." + module.name + ".attention", "another attention",
                       word_of(before.attention), word_of(module.attention), "set it back");
  return Done{};
}

/// The encoders of a medium, in the order in which their rows stand at a marker.
std::string order_of_encoders(const job::Job& job, Medium medium) {
  std::string names;
  for (const ModuleConfig& module : job.modules)
    if (models::media_input(module).medium == medium)
      names += (names.empty() ? "" : ", ") + module.name;
  return names;
}

/// No parameter shows in which order rows of several encoders stand either.
Status check_encoders(const job::Job& saved, const job::Job& now) {
  for (const Medium medium : {Medium::image, Medium::audio}) {
    const auto before = order_of_encoders(saved, medium), here = order_of_encoders(now, medium);
    if (before != here)
      return changed("modules", "encoders in another order", before, here, "set it back");
  }
  return Done{};
}

Result<job::Job> saved_job(const std::filesystem::path& path) {
  auto reading = job::parse_job(files::read_whole(path).value_or(""), path.string(), {},
                                job::Paths::of_another_machine);
  if (!reading.ok()) {
    Error error = reading.problems.front();
    error.code = Errc::bad_data;
    return error;
  }
  return std::move(reading.loaded.job);
}

}  // namespace

std::string saved_sums(const std::filesystem::path& job_file) {
  const auto saved = saved_job(job_file);
  return saved.ok() ? saved.value().cluster.sums : "";
}

DataOrder data_order(const job::Job& job, const DataIdentity& data) {
  DataOrder order{data.records, data.hash, job.train.global_batch_size,
                  static_cast<std::int64_t>(job.job.seed), job.data.shuffle};
  order.epochs = {{0, data.sources.empty() ? std::vector{data.records} : data.sources}};
  return order;
}

DataOrder data_order(const job::Job& job, const DataIdentity& data, const ResumePoint& resume) {
  return resume.progress.data.epochs.empty() ? data_order(job, data) : resume.progress.data;
}

std::int64_t steps_per_epoch(const DataOrder& order) {
  if (order.epochs.size() > 1) return 0;
  return data::batches_per_epoch(order.records, order.batch_size);
}

Result<ResumePoint> resume_from(const state::Checkpoint& checkpoint, const JobSetup& setup,
                                const DataIdentity& data, const HashOfFirst& hash_of_first) {
  const auto& manifest = checkpoint.manifest();
  if (auto same = check_model(manifest, setup.parameters); !same.ok())
    return std::move(same).error();
  const DataOrder& before_order = manifest.progress.data;
  const DataOrder now = data_order(setup.job, data);
  if (auto same = check_order(before_order, now); !same.ok()) return std::move(same).error();
  auto order = continued_order(before_order, now, manifest.progress.step, hash_of_first);
  if (!order.ok()) return std::move(order).error();
  auto before = saved_job(checkpoint.folder() / state::kCheckpointJobFile);
  if (!before.ok()) return std::move(before).error();
  if (auto same = check_encoders(before.value(), setup.job); !same.ok())
    return std::move(same).error();
  if (auto same = check_attention(before.value(), setup.job); !same.ok())
    return std::move(same).error();
  ResumePoint point{std::filesystem::absolute(checkpoint.folder()), manifest.progress,
                    job::changed_keys(before.value(), setup.job),
                    data.records - before_order.records};
  point.progress.data = std::move(order).value();
  // What begins from other weights has them already, and a folder may have been moved.
  std::erase_if(point.changes, [](const job::ChangedKey& change) {
    return change.key.ends_with(".init") || change.key == "job.run_dir";
  });
  // Shares and speeds are those of pipelines and stages on their devices.
  const bool is_moved =
      std::any_of(point.changes.begin(), point.changes.end(), [](const job::ChangedKey& change) {
        return change.key.starts_with("parallel.") || change.key.starts_with("cluster.");
      });
  if (is_moved) {
    point.progress.deals.clear();
    point.progress.learned.speed_steps = 0;
    for (LearnedStage& stage : point.progress.learned.stages) stage.speed = 0;
  }
  return point;
}

}  // namespace troupe::engine
