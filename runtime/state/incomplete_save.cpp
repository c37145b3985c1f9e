#include "runtime/state/incomplete_save.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::state {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-", kMark = ".incomplete-";

/// Named of what is missing; the manifest has all.
constexpr std::size_t kNamed = 3;

struct IncompleteSave {
  fs::path folder;
  CheckpointManifest manifest;
};

/// The step in the name of an incomplete save; 0: it is none.
std::int64_t step_of(const std::string& name) {
  const auto mark = name.find(kMark);
  if (!name.starts_with(kPrefix) || mark == std::string::npos) return 0;
  std::int64_t step = 0;
  const char* const last = name.data() + mark;
  const auto [stop, fault] = std::from_chars(name.data() + kPrefix.size(), last, step);
  return fault == std::errc{} && stop == last && step >= 1 ? step : 0;
}

/// Whether both are parts of one state: of a job that went one way until then.
bool is_same_state(const CheckpointManifest& a, const CheckpointManifest& b) {
  const JobProgress &x = a.progress, &y = b.progress;
  return a.job == b.job && a.dtype == b.dtype && a.parameters == b.parameters && x.step == y.step &&
         x.tokens == y.tokens && x.generation == y.generation && x.data == y.data;
}

using FoundSaves = std::vector<std::pair<std::int64_t, fs::path>>;

/// Those of a step, as far as they can be read and are of the first one's state.
std::vector<IncompleteSave> saves_of(const FoundSaves& all, std::int64_t wanted) {
  std::vector<IncompleteSave> saves;
  for (const auto& [step, path] : all) {
    if (step != wanted) continue;
    auto manifest = read_manifest(path);
    if (!manifest.ok() || manifest.value().progress.step != step) continue;
    if (saves.empty() || is_same_state(saves.front().manifest, manifest.value()))
      saves.push_back({path, std::move(manifest).value()});
  }
  return saves;
}

/// What several saves have together.
struct JoinedSave {
  CheckpointManifest manifest;
  std::vector<fs::path> sources;  ///< Where its files lie now, in their order.
};

JoinedSave join(const std::vector<IncompleteSave>& saves) {
  JoinedSave joined{saves.front().manifest, {}};
  CheckpointManifest& whole = joined.manifest;
  whole.files.clear();
  whole.shards.clear();
  std::set<ShardKey> had;
  for (std::size_t i = 0; i < saves.size(); ++i) {
    std::map<std::int32_t, std::int32_t> places;  // Of its files, in the whole.
    for (const CheckpointShard& shard : saves[i].manifest.shards) {
      if (!had.insert(shard.key).second) continue;
      const auto [place, is_new] =
          places.try_emplace(shard.file, static_cast<std::int32_t>(whole.files.size()));
      if (is_new) {
        CheckpointFile file = saves[i].manifest.files[static_cast<std::size_t>(shard.file)];
        joined.sources.push_back(saves[i].folder / file.name);
        file.name = std::to_string(i) + "-" + file.name;  // Two may have written as one device.
        whole.files.push_back(std::move(file));
      }
      whole.shards.push_back({shard.key, place->second});
    }
  }
  std::erase_if(whole.missing, [&](const MissingShard& shard) { return had.contains(shard.key); });
  std::sort(whole.shards.begin(), whole.shards.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  return joined;
}

/// Of one step: those that are no parts of the state that the others are of.
std::string others_text(const FoundSaves& all, const std::vector<IncompleteSave>& saves) {
  std::vector<std::string> names;
  for (const auto& [step, path] : all)
    if (step == saves.front().manifest.progress.step &&
        std::ranges::find(saves, path, &IncompleteSave::folder) == saves.end())
      names.push_back(path.filename().string());
  return names.empty() ? ""
                       : "; " + joined_by_and(names) + (names.size() > 1 ? " are" : " is") +
                             " of another state, or cannot be read";
}

std::string help_text(std::int64_t step) {
  const std::string number = std::to_string(step);
  return "where another save of step " + number + " has that, put it beside this one (as step-" +
         number + ".incomplete-NAME): --resume puts both together";
}

Status link_or_copy(const fs::path& from, const fs::path& to) {
  const files::ReadingFile reading(from);
  std::error_code code;
  fs::create_hard_link(from, to, code);
  if (code) fs::copy_file(from, to, code);
  if (!code) return Done{};
  return Error{Errc::io_failed, "putting incomplete saves together failed: " + code.message(),
               from.string(), "make room there and check its permissions"};
}

}  // namespace

fs::path incomplete_folder(const fs::path& folder, std::int64_t step, std::int64_t incarnation) {
  return folder / (std::string(kPrefix) + std::to_string(step) + std::string(kMark) +
                   std::to_string(incarnation));
}

std::vector<std::pair<std::int64_t, fs::path>> incomplete_saves_in(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code code;
  const files::ReadingFile reading(folder);
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code))
    if (const auto step = step_of(entry->path().filename().string()); step > 0)
      found.emplace_back(step, entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::string missing_words(const std::vector<SavedParameter>& parameters,
                          const std::vector<MissingShard>& missing) {
  std::vector<std::string> names, holders;
  for (const MissingShard& shard : missing) {
    names.push_back(tensor_name(parameters[shard.key.parameter.index()], shard.key));
    if (!shard.held_by.empty() && std::ranges::find(holders, shard.held_by) == holders.end())
      holders.push_back(shard.held_by);
  }
  return joined_up_to(kNamed, names, "more shards") +
         (holders.empty() ? "" : " (last held by " + joined_by_and(holders) + ")");
}

Error incomplete_error(const CheckpointManifest& manifest, const fs::path& folder) {
  const std::string step = std::to_string(manifest.progress.step);
  return {Errc::bad_data,
          "of step " + step + " only a part is saved; nobody held any more " +
              missing_words(manifest.parameters, manifest.missing),
          folder.string(), help_text(manifest.progress.step)};
}

Error why_incomplete(const fs::path& folder) {
  auto manifest = read_manifest(folder);
  if (!manifest.ok()) return std::move(manifest).error();
  if (manifest.value().missing.empty())
    return {Errc::bad_data, "its manifest lacks nothing, but its name says that it does",
            folder.string(), "call it step-" + std::to_string(manifest.value().progress.step)};
  return incomplete_error(manifest.value(), folder);
}

std::optional<Error> why_only_parts(const fs::path& folder, std::optional<std::int64_t> step) {
  const auto all = incomplete_saves_in(folder);
  if (all.empty()) return std::nullopt;
  const std::int64_t wanted = step.value_or(all.back().first);
  const auto whole = checkpoints_in(folder);
  if (step ? whole.contains(wanted) : !whole.empty() && whole.rbegin()->first >= wanted)
    return std::nullopt;
  const auto saves = saves_of(all, wanted);
  const auto first = std::ranges::find(all, wanted, [](const auto& save) { return save.first; });
  if (first == all.end()) return std::nullopt;
  if (saves.size() < 2) {
    Error why = why_incomplete(saves.empty() ? first->second : saves.front().folder);
    if (!saves.empty()) why.message += others_text(all, saves);
    return why;
  }
  const CheckpointManifest together = join(saves).manifest;
  std::vector<std::string> names;
  for (const IncompleteSave& save : saves) names.push_back(save.folder.filename().string());
  const std::string parts = "of step " + std::to_string(wanted) + " only parts are saved (" +
                            joined_by_and(names) + "), which ";
  const std::string others = others_text(all, saves);
  if (together.missing.empty())
    return Error{Errc::bad_data, parts + "have all of it together" + others, folder.string(),
                 "--resume puts them together, and goes on from there"};
  return Error{
      Errc::bad_data,
      parts + "together lack " + missing_words(together.parameters, together.missing) + others,
      folder.string(), help_text(wanted)};
}

Result<std::optional<fs::path>> join_incomplete_saves(const fs::path& folder) {
  const std::optional<fs::path> none;
  const auto all = incomplete_saves_in(folder);
  if (all.empty()) return none;
  const auto saves = saves_of(all, all.back().first);
  if (saves.size() < 2) return none;
  const std::int64_t step = saves.front().manifest.progress.step;
  const auto whole = checkpoints_in(folder);
  if (!whole.empty() && whole.rbegin()->first >= step) return none;
  const JoinedSave joined = join(saves);
  if (!joined.manifest.missing.empty()) return none;
  const fs::path partial = partial_folder(folder, step, 0);
  discard_checkpoint(partial);  // Of a try that was cut off.
  std::error_code code;
  fs::create_directory(partial, code);  // Where it fails, so does the first file.
  for (std::size_t i = 0; i < joined.sources.size(); ++i)
    if (auto put = link_or_copy(joined.sources[i], partial / joined.manifest.files[i].name);
        !put.ok())
      return std::move(put).error();
  const auto job = files::read_whole(saves.front().folder / kCheckpointJobFile);
  if (!job)
    return Error{Errc::io_failed, "reading failed",
                 (saves.front().folder / kCheckpointJobFile).string(), "copy it again"};
  const fs::path complete = checkpoint_folder(folder, step);
  if (auto done = complete_checkpoint(partial, complete, joined.manifest, *job); !done.ok())
    return std::move(done).error();
  const auto opened = Checkpoint::open(complete);
  if (!opened.ok()) return opened.error();
  if (auto proven = opened.value().verify(); !proven.ok()) return std::move(proven).error();
  for (const IncompleteSave& save : saves) discard_checkpoint(save.folder);
  return std::optional<fs::path>(complete);
}

}  // namespace troupe::state
