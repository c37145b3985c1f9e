#include "runtime/state/saved_values.hpp"

#include <utility>

#include "runtime/files/file_reads.hpp"

namespace troupe::state {

namespace fs = std::filesystem;

namespace {

bool is_file(const fs::path& path) {
  const files::ReadingFile reading(path);
  std::error_code code;
  return fs::is_regular_file(path, code);
}

}  // namespace

Result<fs::path> find_saved_values(const fs::path& named, const fs::path& checkpoints) {
  if (is_file(named)) return named;
  if (is_file(named / kManifestFile)) {
    auto checkpoint = Checkpoint::open(named);
    if (!checkpoint.ok()) return std::move(checkpoint).error();
    if (auto whole = checkpoint.value().verify(); !whole.ok()) return std::move(whole).error();
    return named;
  }
  const fs::path model = named / "model" / "model.safetensors";
  if (is_file(model)) return model;
  auto found = find_checkpoint(checkpoints);
  if (found.newest) return found.newest->folder();
  if (!found.passed_over.empty()) return std::move(found.passed_over.front());
  if (found.incomplete) return *std::move(found.incomplete);
  return Error{Errc::not_found, "no saved weights there", named.string(),
               "name the folder of a run or of a checkpoint, or a safetensors file"};
}

Result<SavedValues> SavedValues::open(const fs::path& path) {
  SavedValues values;
  std::error_code code;
  if (fs::is_directory(path, code)) {
    auto checkpoint = Checkpoint::open(path);
    if (!checkpoint.ok()) return std::move(checkpoint).error();
    values.checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint).value());
    for (const SavedParameter& parameter : values.checkpoint_->manifest().parameters)
      values.shapes_[parameter.name] = parameter.shape;
    return values;
  }
  auto file = SafetensorsReader::open(path);
  if (!file.ok()) return std::move(file).error();
  values.file_ = std::make_unique<SafetensorsReader>(std::move(file).value());
  for (const TensorEntry& entry : values.file_->index().entries)
    values.shapes_[entry.name] = entry.shape;
  return values;
}

Result<at::Tensor> SavedValues::read(const std::string& name, at::ScalarType type) const {
  if (checkpoint_) {
    const auto found = shapes_.find(name);
    const Box whole = found == shapes_.end() ? Box{} : whole_box(found->second);
    return checkpoint_->read(name, StateKind::value, whole, type);
  }
  auto tensor = file_->read(name);
  if (!tensor.ok()) return tensor;
  return tensor.value().to(type);
}

}  // namespace troupe::state
