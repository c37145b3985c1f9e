#include "engine/profiling/profile_run.hpp"

#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "engine/execution/device_place.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_shards.hpp"
#include "engine/profiling/profile_speeds.hpp"
#include "engine/profiling/this_machine.hpp"
#include "kernels/gpu_query.hpp"
#include "models/family/registry.hpp"
#include "runtime/vocabulary/model_words.hpp"

namespace troupe::engine {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Raised whenever a change of the profiler makes older numbers wrong.
/// Of processors, and of other devices.
constexpr const char *kProfiler = "profiler 6", *kDeviceProfiler = "profiler 7";

/// What an encoder makes of its media. How pictures come to their square no layer sees.
std::string media_text(const MediaInput& media) {
  const auto& vision = media.vision;
  const auto& audio = media.audio;
  std::string text;
  for (const auto number : {vision.patch_size, vision.merge_size, vision.rows_per_image,
                            audio.frames_per_row, audio.pooled_rows, audio.rows_per_window})
    text += " " + std::to_string(number);
  if (vision.resize.is_fixed()) text += " in " + std::to_string(vision.square_patches());
  return text;
}

std::string work_text(const LayerWork& work) {
  std::string text = " " + work.kind;
  if (const auto& attention = work.attention)
    text += " " + std::to_string(attention->heads) + " " + std::to_string(attention->kv_heads) +
            (attention->causal ? " causal" : "") + (attention->by_modality ? " by modality" : "");
  // A profile of logits cut otherwise, or kept whole, is one of other bytes and times.
  if (work.logits > 0)
    text += " chunks " + std::to_string(LogitChunks{}.bytes) + " " +
            std::to_string(LogitChunks{}.least);
  return text;
}

/// What is measured, in words: profiles of different devices are different ones.
std::string device_text(const std::string& device) {
  if (device == "cpu") {
    const std::string name = processor_name();
    return (name.empty() ? "cpu" : name) + ", " + std::to_string(core_count()) + " cores";
  }
  const auto gpus = kernels::query_gpus();
  return device == "cuda" && gpus.ok() ? gpus.value().front().name : device;
}

/// Names and shapes of all layers, and what their cost depends on besides.
std::string model_text(const JobSetup& setup) {
  std::string text;
  for (const auto& module : setup.modules()) {
    text += module.name + " " + module.family + media_text(models::media_input(module)) + "\n";
    const auto description = models::describe_module(module, setup.modules());
    if (!description.ok()) continue;  // `prepare` has refused such a model.
    const auto works = models::module_works(module, setup.modules());
    for (std::size_t l = 0; l < works.size(); ++l) {
      const auto& layer = description.value().layers[l];
      text += layer.name + work_text(works[l]);
      for (const auto& parameter : layer.parameters)
        for (const auto size : parameter.shape) text += " " + std::to_string(size);
      text += "\n";
    }
  }
  return text;
}

/// Sets the operator threads for as long as it lives.
class OperatorThreads {
 public:
  explicit OperatorThreads(int count) : before_(at::get_num_threads()) {
    at::set_num_threads(count);
  }
  ~OperatorThreads() { at::set_num_threads(before_); }
  OperatorThreads(const OperatorThreads&) = delete;
  OperatorThreads& operator=(const OperatorThreads&) = delete;

 private:
  int before_;
};

std::vector<scheduler::LayerKindOf> kinds_of_layers(const JobSetup& setup) {
  std::vector<scheduler::LayerKindOf> list;
  const auto names = layer_kind_names(setup);
  for (std::size_t m = 0; m < names.size(); ++m)
    for (std::size_t l = 0; l < names[m].size(); ++l)
      list.push_back({setup.model.modules[m].layers[l].name, names[m][l]});
  return list;
}

/// The fastest probe of all profiles of this machine beside the job's own: so a profile taken
/// wholly in a busy minute shows too. 0 where there is none.
double known_probe_ms(const JobSetup& setup) {
  const auto key = profile_key(setup);
  double fastest_ms = 0;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(default_profile_path(setup).parent_path(), ignored)) {
    if (entry.path().extension() != ".json" || entry.path().stem().extension() == ".runs") continue;
    const auto stored = load_profile(entry.path());
    if (!stored.ok() || stored.value().probe_ms <= 0) continue;
    const auto& other = stored.value().key;
    if (other.device != key.device || other.software != key.software ||
        other.threads != key.threads)
      continue;
    const double probe_ms = stored.value().probe_ms;
    fastest_ms = fastest_ms > 0 ? std::min(fastest_ms, probe_ms) : probe_ms;
  }
  return fastest_ms;
}

QuietWatch watch_for(const JobSetup& setup, const ProfileOptions& options) {
  const OperatorThreads threads(setup.job.cluster.threads_per_device);
  return QuietWatch(options.clocks, 1000 * kRepeatShare * options.budget_s, known_probe_ms(setup));
}

Result<scheduler::Profile> measure(const JobSetup& setup, const ProfileOptions& options,
                                   QuietWatch& watch) {
  const OperatorThreads threads(setup.job.cluster.threads_per_device);
  scheduler::Profile profile;
  profile.device = profile_key(setup).device;
  profile.layers = kinds_of_layers(setup);
  auto layers = profile_layers(
      setup, {options.budget_s, options.point_s_max, options.tokens_max, options.on_progress},
      watch);
  if (!layers.ok()) return std::move(layers).error();
  profile.profiles = std::move(layers).value();
  auto speeds = measure_speeds(setup, watch);
  if (!speeds.ok()) return std::move(speeds).error();
  profile.speeds = speeds.value();
  return profile;
}

bool has_degrees(const scheduler::Profile& profile, scheduler::Parallelism degrees) {
  return std::any_of(profile.profiles.begin(), profile.profiles.end(),
                     [&](const auto& kind) { return kind.parallelism == degrees; });
}

/// Degrees asked for that the profile has nothing of.
std::vector<scheduler::Parallelism> missing_degrees(const scheduler::Profile& profile,
                                                    const ProfileOptions& options) {
  auto missing = options.degrees;
  std::erase_if(missing, [&](auto degrees) { return has_degrees(profile, degrees); });
  return missing;
}

/// What a profile has is measured again with it.
void add_degrees_of(const scheduler::Profile& before, ProfileOptions& options) {
  for (const auto& kind : before.profiles)
    if (kind.parallelism != scheduler::Parallelism{} &&
        std::find(options.degrees.begin(), options.degrees.end(), kind.parallelism) ==
            options.degrees.end())
      options.degrees.push_back(kind.parallelism);
}

std::string degrees_text(const std::vector<scheduler::Parallelism>& list) {
  std::string text;
  for (const auto degrees : list)
    text += (text.empty() ? "tp " : ", tp ") + std::to_string(degrees.tp) + " cp " +
            std::to_string(degrees.cp);
  return text;
}

/// Measures the shards of every kind for these degrees.
Status add_shards(const JobSetup& setup, const std::vector<scheduler::Parallelism>& list,
                  const ProfileOptions& options, QuietWatch& watch, scheduler::Profile& profile) {
  const OperatorThreads threads(setup.job.cluster.threads_per_device);
  const auto kinds = layer_kinds(setup);
  double done = 0;
  for (const auto degrees : list)
    for (const auto& kind : kinds) {
      if (options.on_progress)
        options.on_progress(kind.name + " " + degrees_text({degrees}),
                            done++ / static_cast<double>(list.size() * kinds.size()));
      const auto whole =
          std::find_if(profile.profiles.begin(), profile.profiles.end(), [&](const auto& made) {
            return made.kind == kind.name && made.parallelism == scheduler::Parallelism{};
          });
      if (whole == profile.profiles.end()) continue;  // A kind that shares another's profile.
      auto made = profile_shard(setup, kind, *whole, degrees, profile.speeds.node, watch);
      if (!made.ok()) return std::move(made).error();
      profile.profiles.push_back(std::move(made).value());
    }
  return Done{};
}

/// Why no file at the default place fits: what differs from the newest profile of this job.
std::string why_none_fits(const JobSetup& setup, const fs::path& wanted) {
  std::error_code ignored;
  std::string reason = "there is no profile of this job yet";
  auto newest = fs::file_time_type::min();
  for (const auto& entry : fs::directory_iterator(wanted.parent_path(), ignored)) {
    const auto name = entry.path().filename().string();
    const auto prefix = setup.job.job.name + "-";
    if (!name.starts_with(prefix) || name.size() != prefix.size() + 16 + 5) continue;
    const auto stored = load_profile(entry.path());
    const auto time = entry.last_write_time(ignored);
    if (!stored.ok() || time < newest) continue;
    newest = time;
    if (const auto why = mismatch(profile_key(setup), stored.value().key); !why.empty())
      reason = why + " (" + name + ")";
  }
  return reason;
}

/// The profile of a file, if it serves; else why one must be measured.
struct Lookup {
  std::optional<StoredProfile> profile;
  std::string reason;
  std::vector<std::string> warnings;
  std::optional<StoredProfile> before;  ///< What runs disagree with,
  double ratio = 1;                     ///< by so much.
};

/// A profile that fits, unless runs say that it is wrong.
Lookup look_at_runs(const fs::path& file, StoredProfile stored, bool named) {
  const auto missed = disagreement(load_notes(file), stored);
  if (missed.empty()) return {std::move(stored), {}, {}, {}, 1};
  if (named)
    return {
        std::move(stored),
        {},
        {describe(missed) + "; a named profile is kept: replace it with `troupe profile --force`"},
        {},
        1};
  return {{}, describe(missed), {}, std::move(stored), ratio_of(missed)};
}

Result<Lookup> look_up(const JobSetup& setup, const fs::path& file, bool named, bool force) {
  if (force) return Lookup{{}, "asked for", {}, {}, 1};
  auto stored = load_profile(file);
  if (!stored.ok()) {
    if (stored.error().code == Errc::not_found)
      return Lookup{
          {}, named ? "the file is not there yet" : why_none_fits(setup, file), {}, {}, 1};
    if (named) return std::move(stored).error();
    return Lookup{{}, stored.error().message, {}, {}, 1};
  }
  auto key = profile_key(setup);
  // A head beside its nodes cannot know their GPUs; who names a profile does.
  if (named && setup.job.cluster.device == "cuda" && !kernels::query_gpus().ok())
    key.device = stored.value().key.device;
  const auto why = mismatch(key, stored.value().key);
  if (why.empty()) return look_at_runs(file, std::move(stored).value(), named);
  if (!named) return Lookup{{}, why, {}, {}, 1};
  return Error{Errc::invalid_argument, why, file.string(),
               "name another file, or replace it with `troupe profile --force`"};
}

/// Measures what is missing: everything where nothing was found, then shards. Into `stored`.
Status complete(const JobSetup& setup, const ProfileOptions& options, const Lookup& found,
                const std::vector<scheduler::Parallelism>& missing, StoredProfile& stored) {
  auto watch = watch_for(setup, options);
  if (!found.profile) {
    auto measured = measure(setup, options, watch);
    if (!measured.ok()) return std::move(measured).error();
    stored.key = profile_key(setup);
    stored.profile = std::move(measured).value();
    stored.measured_at = utc_now();
    if (found.before)
      stored.runs_ratio = remaining_ratio(found.before->profile, stored.profile, found.ratio);
  }
  if (auto added = add_shards(setup, missing, options, watch, stored.profile); !added.ok())
    return added.error();
  stored.probe_ms = watch.fastest_probe_ms();
  stored.quiet.insert(stored.quiet.end(), watch.kinds().begin(), watch.kinds().end());
  return Done{};
}

/// The same on the job's kind of device, the first of this machine, by its clocks.
Status complete_there(const JobSetup& setup, const ProfileOptions& options, const Lookup& found,
                      const std::vector<scheduler::Parallelism>& missing, StoredProfile& stored) {
  auto place = usable_place(setup.job.cluster.device, 0, setup.job.train.deterministic);
  if (!place.ok()) {
    Error error = std::move(place).error();
    error.fix +=
        "; or name a profile that was measured where there is one: scheduler.profile; `troupe "
        "plan` takes a computed one: --cluster NODESxDEVICESxNAME";
    return error;
  }
  if (place.value().is_cpu()) return complete(setup, options, found, missing, stored);
  JobSetup there = setup;
  there.layers.device = place.value();
  ProfileOptions by_its_clocks = options;
  by_its_clocks.clocks = machine_clocks(place.value());
  auto made = complete(there, by_its_clocks, found, missing, stored);
  // This process computes no more there: its nodes do.
  auto* cache = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(place.value().type()));
  if (made.ok() && cache != nullptr) cache->emptyCache();
  return made;
}

/// Where a profile that was measured anew does not bring runs back to it.
std::string unexplained(const StoredProfile& stored) {
  char text[256];
  std::snprintf(
      text, sizeof text,
      "measured anew, runs still take %.2f times as long as the profile says: for another "
      "reason, as cores that stages share; it is measured again when runs are %.0f %% off that",
      stored.runs_ratio, 100 * kCheckBand);
  return text;
}

void describe_quietness(const StoredProfile& stored, ObtainedProfile& obtained) {
  obtained.measured_at = stored.measured_at;
  obtained.probe_ms = stored.probe_ms;
  obtained.disturbed_share = disturbed_share(stored);
  obtained.repeated = repeated(stored);
  if (auto warning = busy_warning(stored); !warning.empty())
    obtained.warnings.push_back(std::move(warning));
}

/// Behind the comma the profiler alone, which profiles of other machines must have in common.
std::string software_text(const job::Job& job) {
  const bool on_cpu = job.cluster.device == "cpu";
  const std::string operators = on_cpu || job.train.deterministic ? "" : " with any operators";
  return std::string("LibTorch ") + TORCH_VERSION + operators + ", " +
         (on_cpu ? kProfiler : kDeviceProfiler);
}

}  // namespace

ProfileKey profile_key(const JobSetup& setup) {
  return {hash_of(model_text(setup)), device_text(setup.job.cluster.device),
          software_text(setup.job), dtype_word(setup.job.train.dtype),
          setup.job.cluster.threads_per_device};
}

fs::path default_profile_path(const JobSetup& setup) {
  const auto& job = setup.job.job;
  return job.run_dir.parent_path() / "profiles" /
         (job.name + "-" + hash_of(profile_key(setup)) + ".json");
}

Result<ObtainedProfile> obtain_profile(const JobSetup& setup, const ProfileOptions& options) {
  // Refused before anything is measured.
  for (const auto degrees : options.degrees)
    if (auto checked = check_degrees(setup, degrees); !checked.ok()) return checked.error();
  ObtainedProfile obtained;
  obtained.file = !options.file.empty() ? options.file : setup.job.scheduler.profile;
  const bool named = !obtained.file.empty();
  if (!named) obtained.file = default_profile_path(setup);
  auto looked_up = look_up(setup, obtained.file, named, options.force);
  if (!looked_up.ok()) return std::move(looked_up).error();
  Lookup& found = looked_up.value();
  obtained.reason = found.reason;
  obtained.warnings = found.warnings;
  auto stored = found.profile.value_or(StoredProfile{});
  auto wanted = options;
  if (found.before) add_degrees_of(found.before->profile, wanted);
  const auto missing = missing_degrees(stored.profile, wanted);
  obtained.reused = found.profile && missing.empty();
  if (!obtained.reused) {
    const auto begin = Clock::now();
    if (auto made = complete_there(setup, options, found, missing, stored); !made.ok())
      return made.error();
    if (obtained.reason.empty())
      obtained.reason = "the profile has nothing of " + degrees_text(missing);
    obtained.measured_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (auto saved = save_profile(obtained.file, stored); !saved.ok()) return saved.error();
    std::error_code ignored;
    if (!found.profile) fs::remove(notes_path(obtained.file), ignored);  // Of the one before.
    if (stored.runs_ratio != 1 && found.before) obtained.warnings.push_back(unexplained(stored));
  }
  describe_quietness(stored, obtained);
  obtained.profile = std::move(stored.profile);
  return obtained;
}

Result<ObtainedProfile> use_profile(JobSetup& setup, const ProfileOptions& options) {
  auto obtained = obtain_profile(setup, options);
  if (!obtained.ok()) return obtained;
  auto costs = planning_costs(setup, obtained.value().profile, memory_at_hand(setup.job.cluster));
  if (!costs.ok()) return std::move(costs).error();
  setup.costs = std::move(costs).value();
  setup.profile = {obtained.value().file, obtained.value().measured_at, obtained.value().probe_ms};
  return obtained;
}

}  // namespace troupe::engine
