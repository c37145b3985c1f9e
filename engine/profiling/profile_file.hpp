// The profile file: a `scheduler::Profile` as JSON, with the key that says what it is valid for.
//
// Stateless. The format is documented by the writer; its `format` number rises with every change
// that an older reader would misunderstand.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/profiling/profile_quiet.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// How `modelled` numbers came about, as written beside them and shown to users.
inline constexpr const char* kModelledHow = "shard measured, collectives modelled";
/// What measured links are, as written beside them and shown to users.
inline constexpr const char* kMeasuredLinks =
    "node: devices of one process; machine: nodes on it, by UCX; network: UCX by TCP over the "
    "loopback, so without a wire";

/// What the numbers of a profile depend on.
struct ProfileKey {
  std::string model;     ///< Hash of all layers' names and shapes.
  std::string device;    ///< `Intel(R) Xeon(R) ..., 2 cores`.
  std::string software;  ///< LibTorch, whether it takes any operators, the profiler's own version.
  std::string dtype;     ///< `fp32`.
  std::int32_t threads = 1;

  friend bool operator==(const ProfileKey&, const ProfileKey&) = default;
};

/// 16 hexadecimal digits.
std::string hash_of(const ProfileKey& key);

/// 64-bit FNV-1a of a text, as 16 hexadecimal digits.
std::string hash_of(const std::string& text);

/// Why a profile of `there` does not serve for `wanted`: "the dtype is bf16, the profile is of
/// fp32". Empty where it does.
std::string mismatch(const ProfileKey& wanted, const ProfileKey& there);

struct StoredProfile {
  ProfileKey key;
  scheduler::Profile profile;
  // How it came about; a file of an older version says nothing of it.
  std::string measured_at{};  ///< `2026-11-23T02:10:57Z`; empty: not known.
  double probe_ms = 0;        ///< The fastest probe (profile_quiet.hpp) known then; 0: none.
  double runs_ratio = 1;      ///< Runs take so many times what it says, for reasons of their own.
  std::vector<KindQuietness> quiet{};  ///< Of measured kinds.

  friend bool operator==(const StoredProfile&, const StoredProfile&) = default;
};

/// Share of the repetitions behind the numbers that something disturbed, kinds weighing as much as
/// their times, since short ones are seldom met; 0 where it is not known.
double disturbed_share(const StoredProfile& stored);
/// Repetitions in place of disturbed ones.
std::int64_t repeated(const StoredProfile& stored);

/// One sentence where the machine was not quiet (`kDisturbedShareMax`) while it was measured, with
/// the fix; else empty.
std::string busy_warning(const StoredProfile& stored);

/// Errors:
/// - not_found: no such file. io_failed: it cannot be read.
/// - bad_data: not JSON, another `format`, or a field that is missing, of another type, negative
///   or not finite; `where` names file and field.
Result<StoredProfile> load_profile(const std::filesystem::path& path);

/// Writes the file whole or not at all (beside it first, then renamed); makes its folder.
/// Errors: io_failed.
Status save_profile(const std::filesystem::path& path, const StoredProfile& stored);

/// Writes a text of or about a profile whole or not at all, whoever else writes it. Errors:
/// io_failed.
Status write_whole(const std::filesystem::path& path, const std::string& text);

/// The file's text.
std::string to_json(const StoredProfile& stored);

/// The inverse; `where` is what errors name. Errors: bad_data.
Result<StoredProfile> profile_from_json(const std::string& text, const std::string& where);

}  // namespace troupe::engine
