#include "engine/profiling/corrected_profile.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_file.hpp"
#include "engine/profiling/profile_run.hpp"
#include "models/family/registry.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "scheduler/cost/state_bytes.hpp"

namespace troupe::engine {

namespace {

namespace fs = std::filesystem;

/// `profiler 7` of `LibTorch 2.11.0, profiler 7`.
std::string profiler_of(const ProfileKey& key) {
  const auto comma = key.software.rfind(", ");
  return comma == std::string::npos ? key.software : key.software.substr(comma + 2);
}

/// A stored profile, and its kinds that the job's model has too.
struct Candidate {
  fs::path file;
  StoredProfile stored;
  std::vector<scheduler::LayerProfile> kinds;
};

/// What may serve for a job on a device of the catalogue.
class Search {
 public:
  Search(const JobSetup& setup, const scheduler::DeviceSpec& device)
      : device_(device), folder_(default_profile_path(setup).parent_path()) {
    JobSetup there = setup;
    there.job.cluster.device = "cuda";
    wanted_ = profile_key(there);
    const double element_bytes = scheduler::bytes_per_element(setup.job.train.dtype);
    for (const auto& module : setup.modules()) {
      const auto description = models::describe_module(module, setup.modules());
      if (!description.ok()) continue;  // `prepare` has refused such a model.
      const auto works = models::module_works(module, setup.modules());
      for (std::size_t l = 0; l < works.size(); ++l) {
        double elements = 0;
        for (const auto& parameter : description.value().layers[l].parameters)
          elements += static_cast<double>(parameter.elements());
        bytes_.emplace(works[l].kind, Bytes{static_cast<std::int64_t>(elements * element_bytes)});
      }
    }
  }

  /// Errors: as `load_profile`; invalid_argument: it says nothing of this job on this device.
  Result<Candidate> look_at(const fs::path& file) const {
    auto stored = load_profile(file);
    if (!stored.ok()) return std::move(stored).error();
    auto why = refusal(stored.value().key);
    Candidate found{file, std::move(stored).value(), {}};
    for (const auto& kind : found.stored.profile.profiles)
      if (const auto own = bytes_.find(kind.kind);
          own != bytes_.end() && own->second == kind.parameters)
        found.kinds.push_back(kind);
    if (why.empty() && found.kinds.empty()) why = "it is of a model that shares no layer";
    if (why.empty()) return found;
    return Error{Errc::invalid_argument, why, file.string(),
                 "name a profile that was measured on an " + device_.name};
  }

  std::optional<Candidate> best_of_folder() const {
    std::optional<Candidate> best;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
      const auto& file = entry.path();
      if (file.extension() != ".json" || file.stem().extension() == ".runs") continue;
      auto found = look_at(file);
      if (found.ok() && (!best || rank_of(found.value()) > rank_of(*best)))
        best = std::move(found).value();
    }
    return best;
  }

 private:
  static std::tuple<std::size_t, std::string, std::string> rank_of(const Candidate& candidate) {
    return {candidate.kinds.size(), candidate.stored.measured_at, candidate.file.string()};
  }

  std::string refusal(const ProfileKey& there) const {
    const auto* reported = scheduler::reported_device(there.device);
    if (reported == nullptr || reported->name != device_.name)
      return "it was measured on " + there.device + ", not on an " + device_.name;
    if (there.dtype != wanted_.dtype)
      return "it was measured in " + there.dtype + ", and the job computes in " + wanted_.dtype;
    if (profiler_of(there) != profiler_of(wanted_))
      return "it was measured by " + profiler_of(there) + ", and this is " + profiler_of(wanted_);
    return {};
  }

  const scheduler::DeviceSpec& device_;
  fs::path folder_;
  ProfileKey wanted_;
  std::map<std::string, Bytes> bytes_;  // Of a layer's parameters, by kind.
};

/// What a device does alone. A file of an older version may lack some of it.
void take_measured(const scheduler::DeviceSpeeds& measured, scheduler::DeviceSpeeds& speeds) {
  if (measured.origin != scheduler::CostOrigin::measured) return;
  const auto take = [](double known, double& speed) {
    if (known > 0) speed = known;
  };
  take(measured.reduce_gigabytes_per_s, speeds.reduce_gigabytes_per_s);
  take(measured.optimizer_elements_per_s, speeds.optimizer_elements_per_s);
  take(measured.optimizer_group_ms, speeds.optimizer_group_ms);
  if (measured.host.gigabytes_per_s > 0) speeds.host = measured.host;
}

std::string factor_text(const scheduler::KindCorrection& kind) {
  char text[32];
  std::snprintf(text, sizeof text, " x%.2f", *kind.factor);
  return kind.kind + text;
}

}  // namespace

CorrectedProfile corrected_profile(const JobSetup& setup, const scheduler::DeviceSpec& device,
                                   const std::vector<scheduler::Parallelism>& degrees) {
  const Search search(setup, device);
  CorrectedProfile made;
  made.device = device.name;
  std::optional<Candidate> found;
  if (const auto& named = setup.job.scheduler.profile; named.empty()) {
    found = search.best_of_folder();
  } else if (auto looked_at = search.look_at(named); looked_at.ok()) {
    found = std::move(looked_at).value();
  } else {
    made.refused = looked_at.error().message;
  }
  const auto computed = computed_profile(setup, device, degrees);
  made.profile = computed;
  if (found) {
    made.measured = found->file;
    made.measured_on = found->stored.key.device;
    made.profile = computed_profile(setup, device, degrees, planned_network(), found->kinds);
    take_measured(found->stored.profile.speeds, made.profile.speeds);
  }
  made.kinds = scheduler::kind_corrections(computed.profiles, made.profile.profiles);
  return made;
}

std::string corrections_text(const CorrectedProfile& profile) {
  if (profile.measured.empty())
    return "costs: computed alone for every kind of layer, as no profile that was measured on an " +
           profile.device + " is at hand (`troupe profile` there, then scheduler.profile=FILE)";
  std::vector<std::string> corrected, alone;
  for (const auto& kind : profile.kinds)
    if (kind.factor)
      corrected.push_back(factor_text(kind));
    else
      alone.push_back(kind.kind);
  return "costs: corrected by what layers took on " + profile.measured_on + " (" +
         profile.measured.string() + "): " + joined(corrected) +
         "; computed alone: " + (alone.empty() ? "none" : joined(alone));
}

}  // namespace troupe::engine
