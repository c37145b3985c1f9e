#include "runtime/state/checkpoint.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "runtime/files/file_reads.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/incomplete_save.hpp"
#include "runtime/state/shard_view.hpp"

namespace troupe::state {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";

Error unusable(Error error, const fs::path& where) {
  error.where = where.string();
  if (error.fix.empty()) error.fix = "use an older one, or copy it again";
  return error;
}

Error damaged(const fs::path& where, const std::string& how) {
  return {Errc::bad_data, "the checkpoint is damaged: " + how, where.string(),
          "use an older one, or copy it again"};
}

Result<std::string> read_manifest_text(const fs::path& path) {
  const files::ReadingFile reading(path);
  std::error_code code;
  const auto size = fs::file_size(path, code);
  if (code == std::errc::no_such_file_or_directory)
    return Error{Errc::not_found, "no checkpoint: it has no manifest", path.string(),
                 "give a folder step-N of a run's checkpoints"};
  if (code) return Error{Errc::io_failed, code.message(), path.string(), ""};
  if (size > static_cast<std::uintmax_t>(kManifestBytesMax))
    return damaged(path, "its manifest has " + std::to_string(size) + " bytes");
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) return Error{Errc::io_failed, "reading failed", path.string(), ""};
  return text;
}

Status check_size(const fs::path& path, std::int64_t bytes) {
  const files::ReadingFile reading(path);
  std::error_code code;
  const auto size = fs::file_size(path, code);
  if (code == std::errc::no_such_file_or_directory) return damaged(path, "this file is missing");
  if (code) return Error{Errc::io_failed, code.message(), path.string(), ""};
  if (size != static_cast<std::uintmax_t>(bytes))
    return damaged(path, "this file has " + std::to_string(size) + " bytes, it was written with " +
                             std::to_string(bytes));
  return Done{};
}

/// What two boxes share; empty: nothing.
Box common(const Box& a, const Box& b) {
  Box shared;
  for (std::size_t d = 0; d < a.size(); ++d) {
    shared.push_back({std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)});
    if (shared[d].size() <= 0) return {};
  }
  return shared;
}

}  // namespace

Result<CheckpointManifest> read_manifest(const fs::path& folder) {
  auto text = read_manifest_text(folder / kManifestFile);
  if (!text.ok()) return std::move(text).error();
  auto manifest = parse_manifest(text.value());
  if (!manifest.ok()) return unusable(std::move(manifest).error(), folder / kManifestFile);
  return manifest;
}

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  auto manifest = read_manifest(folder);
  if (!manifest.ok()) return std::move(manifest).error();
  if (!manifest.value().missing.empty()) return incomplete_error(manifest.value(), folder);
  for (const CheckpointFile& file : manifest.value().files)
    if (auto fits = check_size(folder / file.name, file.bytes); !fits.ok())
      return std::move(fits).error();
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.manifest_ = std::move(manifest).value();
  for (std::size_t p = 0; p < checkpoint.manifest_.parameters.size(); ++p)
    checkpoint.names_[checkpoint.manifest_.parameters[p].name] = ParameterId{p};
  return checkpoint;
}

Status Checkpoint::verify() const {
  for (const CheckpointFile& file : manifest_.files) {
    const auto digest = sha256_of_file(folder_ / file.name);
    if (!digest.ok()) return digest.error();
    if (digest.value() != file.sha256)
      return damaged(folder_ / file.name, "this file's content is not what was written");
  }
  return Done{};
}

ParameterId Checkpoint::find(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? ParameterId{} : found->second;
}

Result<const SafetensorsReader*> Checkpoint::file(std::int32_t index) const {
  auto& open = files_[index];
  if (!open) {
    const auto& name = manifest_.files[static_cast<std::size_t>(index)].name;
    auto reader = SafetensorsReader::open(folder_ / name);
    if (!reader.ok()) return std::move(reader).error();
    open = std::make_unique<SafetensorsReader>(std::move(reader).value());
  }
  return open.get();
}

Result<at::Tensor> Checkpoint::read_shard(const CheckpointShard& shard) const {
  const auto reader = file(shard.file);
  if (!reader.ok()) return reader.error();
  const auto name = tensor_name(manifest_.parameters[shard.key.parameter.index()], shard.key);
  auto tensor = reader.value()->read(name);
  if (!tensor.ok()) return tensor;
  if (tensor.value().sizes() != at::IntArrayRef(shape_of(shard.key)))
    return damaged(folder_ / manifest_.files[static_cast<std::size_t>(shard.file)].name,
                   "'" + name + "' has another shape than the manifest says");
  return tensor;
}

Result<at::Tensor> Checkpoint::read(const std::string& parameter, StateKind kind, const Box& box,
                                    at::ScalarType type) const {
  const ParameterId id = find(parameter);
  if (!id.valid())
    return Error{Errc::not_found, "the checkpoint has no parameter '" + parameter + "'",
                 folder_.string(), ""};
  const bool has_master = manifest_.dtype == Dtype::bf16 && manifest_.parameters[id.index()].trains;
  if (kind != StateKind::moments) kind = has_master ? StateKind::master : StateKind::value;
  try {
    at::Tensor target = at::empty(shape_of({id, kind, box}), type);
    std::int64_t copied = 0;
    for (const CheckpointShard& shard : manifest_.shards) {
      if (shard.key.parameter != id || shard.key.kind != kind) continue;
      const Box shared = common(shard.key.box, box);
      if (shared.size() != box.size()) continue;
      auto tensor = read_shard(shard);
      if (!tensor.ok()) return tensor;
      view_of(target, {id, kind, box}, shared).copy_(view_of(tensor.value(), shard.key, shared));
      copied += elements_of(shared);
    }
    if (copied != elements_of(box))
      return Error{Errc::not_found, "the checkpoint has no optimizer state of '" + parameter + "'",
                   folder_.string(), ""};
    return target;
  } catch (const c10::Error& error) {
    return Error{Errc::io_failed, "'" + parameter + "': " + error.what_without_backtrace(),
                 folder_.string(), ""};
  }
}

fs::path checkpoint_folder(const fs::path& folder, std::int64_t step) {
  return folder / (std::string(kPrefix) + std::to_string(step));
}

std::map<std::int64_t, fs::path> checkpoints_in(const fs::path& folder) {
  std::map<std::int64_t, fs::path> found;
  std::error_code code;
  const files::ReadingFile reading(folder);
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t step = 0;
    const char* const last = name.data() + name.size();
    const auto [stop, fault] = std::from_chars(name.data() + kPrefix.size(), last, step);
    if (fault == std::errc{} && stop == last && step >= 1) found[step] = entry->path();
  }
  return found;
}

FoundCheckpoint find_checkpoint(const fs::path& folder) {
  FoundCheckpoint found;
  const auto all = checkpoints_in(folder);
  for (auto candidate = all.rbegin(); candidate != all.rend(); ++candidate) {
    auto opened = Checkpoint::open(candidate->second);
    if (!opened.ok()) {
      found.passed_over.push_back(std::move(opened).error());
      continue;
    }
    if (const auto step = opened.value().manifest().progress.step; step != candidate->first) {
      found.passed_over.push_back(
          damaged(candidate->second, "it has the state of step " + std::to_string(step)));
      continue;
    }
    if (auto whole = opened.value().verify(); !whole.ok()) {
      found.passed_over.push_back(whole.error());
      continue;
    }
    found.newest = std::make_unique<Checkpoint>(std::move(opened).value());
    break;
  }
  const std::int64_t step = found.newest ? found.newest->manifest().progress.step : 0;
  const auto incomplete = incomplete_saves_in(folder);
  if (!incomplete.empty() && incomplete.back().first > step)
    found.incomplete = why_incomplete(incomplete.back().second);
  return found;
}

}  // namespace troupe::state
