// Costs on a device that is not here, computed, and corrected by a profile that was measured on one
// like it: so a plan for a thousand of them uses what a single one showed.
//
// Reads stored profiles; measures nothing. Thread-safe.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "scheduler/cost/device_catalog.hpp"
#include "scheduler/cost/profile.hpp"
#include "scheduler/cost/roofline.hpp"

namespace troupe::engine {

struct CorrectedProfile {
  scheduler::Profile profile;      ///< Every number is labelled `computed`.
  std::string device;              ///< Of the catalogue: `H100-80G`.
  std::filesystem::path measured;  ///< The file that corrects it; empty: all is computed alone.
  std::string measured_on;         ///< As that file has it: `NVIDIA H100 80GB HBM3`.
  std::vector<scheduler::KindCorrection> kinds;  ///< In the model's order.
  std::string refused;  ///< Why the file of `scheduler.profile` corrects nothing; else empty.
};

/// `computed_profile` at these degrees, corrected (scheduler/cost/measured_ratios.hpp) by the file
/// that `scheduler.profile` names, or where it names none by one beside `default_profile_path`: one
/// with the most layers of the job, of these the newest. It serves if it was measured on such a
/// device (`scheduler::reported_device`), in the job's dtype and by this profiler; LibTorch may be
/// another. Layers of a model are those of another, smaller one, where a kind has the same name and
/// as many bytes of parameters. Updates, sums of gradients and copies to the host are taken as
/// measured; links between devices are not, as one device has none.
///
/// A file that cannot be read serves no more than one of another device.
CorrectedProfile corrected_profile(const JobSetup& setup, const scheduler::DeviceSpec& device,
                                   const std::vector<scheduler::Parallelism>& degrees = {{}});

/// In a sentence, which kinds are corrected by what factor, by which file, and which are computed
/// alone.
std::string corrections_text(const CorrectedProfile& profile);

}  // namespace troupe::engine
