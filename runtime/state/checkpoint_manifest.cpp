#include "runtime/state/checkpoint_manifest.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "runtime/state/manifest_reading.hpp"
#include "runtime/state/progress_json.hpp"
#include "runtime/vocabulary/library_words.hpp"

namespace troupe::state {

namespace {

constexpr std::int64_t kElementsMax = std::int64_t{1} << 50;
/// Of one parameter and kind; pairs of them are compared.
constexpr std::size_t kShardsMax = 4096;

constexpr std::pair<StateKind, const char*> kKinds[] = {
    {StateKind::value, "value"}, {StateKind::master, "master"}, {StateKind::moments, "moments"}};
constexpr std::pair<Dtype, const char*> kDtypes[] = {
    {Dtype::fp32, "fp32"}, {Dtype::bf16, "bf16"}, {Dtype::fp64, "fp64"}};

template <class T, std::size_t N>
const char* word_of(const std::pair<T, const char*> (&table)[N], T value) {
  for (const auto& [known, word] : table)
    if (known == value) return word;
  return "";
}

template <class T, std::size_t N>
T value_of(const std::pair<T, const char*> (&table)[N], const std::string& word, const char* what) {
  for (const auto& [known, name] : table)
    if (name == word) return known;
  throw BadManifest(std::string(what) + " '" + word + "' is unknown");
}

// ---- parameters, files, shards

std::vector<SavedParameter> read_parameters(const Json& json) {
  std::vector<SavedParameter> parameters;
  std::set<std::string> names;
  for (const Json& entry : list(json, "parameters")) {
    SavedParameter parameter{text(entry, "name"), {}, entry.at("trains").get<bool>()};
    if (!names.insert(parameter.name).second)
      throw BadManifest("parameter '" + parameter.name + "' is listed twice");
    std::int64_t elements = 1;
    for (const Json& size : list(entry, "shape")) {
      const std::int64_t extent = size.get<std::int64_t>();
      if (!size.is_number_integer() || extent < 1 || extent > kElementsMax / elements)
        throw BadManifest("parameter '" + parameter.name + "' has an impossible shape");
      elements *= extent;
      parameter.shape.push_back(extent);
    }
    parameters.push_back(std::move(parameter));
  }
  if (parameters.empty()) throw BadManifest("it lists no parameter");
  return parameters;
}

std::vector<CheckpointFile> read_files(const Json& json) {
  std::vector<CheckpointFile> files;
  std::set<std::string> names;
  for (const Json& entry : list(json, "files")) {
    CheckpointFile file{text(entry, "name"), number(entry, "bytes"), text(entry, "sha256")};
    const bool plain = !file.name.empty() && file.name != "." && file.name != ".." &&
                       file.name.find_first_of(std::string("/\0", 2)) == std::string::npos;
    if (!plain) throw BadManifest("a file is called '" + file.name + "'");
    if (!names.insert(file.name).second)
      throw BadManifest("file '" + file.name + "' is listed twice");
    files.push_back(std::move(file));
  }
  return files;
}

Box read_box(const Json& json, const SavedParameter& parameter) {
  Box box;
  for (const Json& range : list(json, "box")) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() ||
        !range[1].is_number_integer())
      throw BadManifest("a shard of '" + parameter.name + "' has a box that is no list of ranges");
    box.push_back({range[0].get<std::int64_t>(), range[1].get<std::int64_t>()});
  }
  bool fits = box.size() == parameter.shape.size();
  for (std::size_t d = 0; fits && d < box.size(); ++d)
    fits = box[d].begin >= 0 && box[d].begin < box[d].end && box[d].end <= parameter.shape[d];
  if (!fits) throw BadManifest("a shard of '" + parameter.name + "' does not lie within it");
  return box;
}

ShardKey read_key(const Json& entry, const CheckpointManifest& manifest) {
  const std::int64_t parameter = number(entry, "parameter");
  if (parameter >= std::ssize(manifest.parameters))
    throw BadManifest("a shard names a parameter that is not listed");
  const auto id = ParameterId{static_cast<std::size_t>(parameter)};
  return {id, value_of(kKinds, text(entry, "kind"), "kind"),
          read_box(entry, manifest.parameters[id.index()])};
}

std::vector<CheckpointShard> read_shards(const Json& json, const CheckpointManifest& manifest) {
  std::vector<CheckpointShard> shards;
  for (const Json& entry : list(json, "shards")) {
    const std::int64_t file = number(entry, "file");
    if (file >= std::ssize(manifest.files))
      throw BadManifest("a shard names a file that is not listed");
    shards.push_back({read_key(entry, manifest), static_cast<std::int32_t>(file)});
  }
  std::sort(shards.begin(), shards.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  return shards;
}

/// Of whole checkpoints there are none.
std::vector<MissingShard> read_missing(const Json& json, const CheckpointManifest& manifest) {
  std::vector<MissingShard> missing;
  if (!json.contains("missing")) return missing;
  for (const Json& entry : list(json, "missing"))
    missing.push_back({read_key(entry, manifest), text(entry, "held_by")});
  std::sort(missing.begin(), missing.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  return missing;
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.size(); ++d)
    if (a[d].end <= b[d].begin || b[d].end <= a[d].begin) return false;
  return true;
}

/// Boxes that do not overlap and have as many elements as the parameter are all of it; those that
/// an incomplete save lists as missing, too.
void check_coverage(const CheckpointManifest& manifest) {
  std::map<std::pair<ParameterId, StateKind>, std::vector<const Box*>> boxes;
  for (const CheckpointShard& shard : manifest.shards)
    boxes[{shard.key.parameter, shard.key.kind}].push_back(&shard.key.box);
  for (const MissingShard& shard : manifest.missing)
    boxes[{shard.key.parameter, shard.key.kind}].push_back(&shard.key.box);
  for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
    const SavedParameter& parameter = manifest.parameters[p];
    for (const auto& [kind, word] : kKinds) {
      const auto& own = boxes[{ParameterId{p}, kind}];
      const bool wanted =
          kind == StateKind::value ||
          (parameter.trains && (kind == StateKind::moments || manifest.dtype == Dtype::bf16));
      std::int64_t elements = 0;
      if (own.size() > kShardsMax)
        throw BadManifest("'" + parameter.name + "' has too many shards");
      for (std::size_t i = 0; i < own.size(); ++i) {
        elements += elements_of(*own[i]);
        for (std::size_t j = 0; j < i; ++j)
          if (overlap(*own[i], *own[j]))
            throw BadManifest("shards of '" + parameter.name + "' overlap");
      }
      if (elements != (wanted ? elements_of(whole_box(parameter.shape)) : 0))
        throw BadManifest(std::string("the ") + word + " of '" + parameter.name +
                          (wanted ? "' is not whole" : "' has no place in it"));
    }
  }
}

CheckpointManifest read(const Json& json) {
  const std::int64_t format = number(json, "format", 1);
  if (format > kCheckpointFormat)
    throw BadManifest("its format " + std::to_string(format) + " is newer than this build's, " +
                      std::to_string(kCheckpointFormat));
  CheckpointManifest manifest;
  manifest.job = text(json, "job");
  manifest.build = text(json, "build");
  manifest.written_at = text(json, "written_at");
  manifest.dtype = value_of(kDtypes, text(json, "dtype"), "dtype");
  manifest.progress = read_progress(json.at("progress"));
  manifest.parameters = read_parameters(json);
  manifest.files = read_files(json);
  manifest.shards = read_shards(json, manifest);
  manifest.missing = read_missing(json, manifest);
  check_coverage(manifest);
  return manifest;
}

}  // namespace

std::int64_t CheckpointManifest::bytes() const {
  std::int64_t sum = 0;
  for (const CheckpointFile& file : files) sum += file.bytes;
  return sum;
}

std::string tensor_name(const SavedParameter& parameter, const ShardKey& key) {
  std::string name = parameter.name;
  if (key.kind != StateKind::value) name += std::string("@") + word_of(kKinds, key.kind);
  if (key.box == whole_box(parameter.shape)) return name;
  for (std::size_t d = 0; d < key.box.size(); ++d)
    name += (d == 0 ? "[" : ",") + std::to_string(key.box[d].begin) + ":" +
            std::to_string(key.box[d].end);
  return name + "]";
}

namespace {

Json json_of(const ShardKey& key) {
  Json box = Json::array();
  for (const IndexRange& range : key.box) box.push_back(Json::array({range.begin, range.end}));
  return {{"parameter", key.parameter.value}, {"kind", word_of(kKinds, key.kind)}, {"box", box}};
}

}  // namespace

std::string manifest_json(const CheckpointManifest& manifest) {
  Json parameters = Json::array(), files = Json::array(), shards = Json::array();
  for (const SavedParameter& parameter : manifest.parameters)
    parameters.push_back(
        {{"name", parameter.name}, {"shape", parameter.shape}, {"trains", parameter.trains}});
  for (const CheckpointFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  for (const CheckpointShard& shard : manifest.shards) {
    shards.push_back(json_of(shard.key));
    shards.back()["file"] = shard.file;
  }
  Json json = {{"format", kCheckpointFormat},
               {"job", manifest.job},
               {"build", manifest.build},
               {"written_at", manifest.written_at},
               {"dtype", word_of(kDtypes, manifest.dtype)},
               {"progress", json_of(manifest.progress)},
               {"parameters", parameters},
               {"files", files},
               {"shards", shards}};
  for (const MissingShard& shard : manifest.missing) {
    json["missing"].push_back(json_of(shard.key));
    json["missing"].back()["held_by"] = shard.held_by;
  }
  // Ids of samples may hold any bytes.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<CheckpointManifest> parse_manifest(std::string_view text) {
  const auto bad = [](const std::string& why) {
    return Error{Errc::bad_data, "no usable manifest of a checkpoint: " + why, {}, {}};
  };
  try {
    return read(Json::parse(text));
  } catch (const BadManifest& fault) {
    return bad(without_code(fault.what()));
  } catch (const Json::exception& fault) {
    return bad(without_code(fault.what()));
  }
}

}  // namespace troupe::state
