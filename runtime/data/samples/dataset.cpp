#include "runtime/data/samples/dataset.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/data/formats/registry.hpp"
#include "runtime/data/reading/read_file.hpp"
#include "runtime/data/samples/record_place.hpp"
#include "runtime/files/look_up.hpp"

namespace troupe::data {
namespace {

std::string source_key(std::size_t index, const char* field) {
  return "data.sources[" + std::to_string(index) + "]." + field;
}

std::filesystem::path media_folder(const DataSource& source) {
  return source.media.empty() ? source.json.parent_path() : source.media;
}

/// How a source's file is called in ids and places: its name, or its path where names clash.
std::string short_name(const std::vector<DataSource>& sources, std::size_t index) {
  const auto name = sources[index].json.filename();
  const auto same = std::count_if(sources.begin(), sources.end(), [&](const DataSource& other) {
    return other.json.filename() == name;
  });
  return same > 1 ? sources[index].json.string() : name.string();
}

bool uses_media(const std::vector<Record>& records) {
  return std::any_of(records.begin(), records.end(), [](const Record& record) {
    return !record.images.empty() || !record.audio.empty();
  });
}

Result<std::vector<Record>> read_source(const DataOptions& options, std::size_t index) {
  const DataSource& source = options.sources[index];
  if (auto known = check_format(source.format); !known.ok()) {
    Error error = known.error();
    error.where = source_key(index, "format");
    return error;
  }
  auto text = read_file(source.json);
  if (!text) {
    Error error = text.error();
    error.where = source_key(index, "json");
    return error;
  }
  auto records = read_records(source.format, text.value(), short_name(options.sources, index));
  if (!records) return records;

  const auto folder = media_folder(source);
  if (!source.may_lack_media && uses_media(records.value()) && !folder.empty() &&
      !files::is_folder(folder))
    return Error{Errc::not_found, "there is no folder " + folder.string(),
                 source_key(index, "media"), "name the folder that media paths are relative to"};
  for (auto& record : records.value()) record.source = static_cast<std::int32_t>(index);
  return records;
}

Status check_ids(const std::vector<Record>& records) {
  constexpr int kListed = 5;
  std::unordered_map<std::string_view, const Record*> first_use;
  first_use.reserve(records.size());
  std::string list, where;
  int clashes = 0;
  for (const auto& record : records) {
    const auto [entry, is_new] = first_use.emplace(record.id, &record);
    if (is_new) continue;
    if (where.empty()) where = record.where;
    if (++clashes <= kListed)
      list += (list.empty() ? "'" : "; '") + record.id + "' at " + entry->second->where + " and " +
              record.where;
  }
  if (clashes == 0) return Done{};
  return Error{Errc::bad_data,
               std::to_string(clashes) + " sample ids are used again: " + list +
                   (clashes > kListed ? "; ..." : ""),
               where,
               "give every record an id of its own, or leave 'id' out: ids are then made from file "
               "and place"};
}

}  // namespace

Result<Dataset> Dataset::open(const DataOptions& options) {
  if (auto problems = problems_of(options); !problems.empty()) return problems.front();
  if (options.sources.empty())
    return Error{Errc::invalid_argument, "no source of samples is given", "data.sources",
                 "add [[data.sources]] with json = \"FILE\" and media = \"FOLDER\""};
  Dataset dataset;
  for (std::size_t i = 0; i < options.sources.size(); ++i) {
    dataset.media_folders_.push_back(media_folder(options.sources[i]));
    dataset.begins_.push_back(dataset.size());
    dataset.is_here_.push_back(options.sources[i].is_here);
    if (!options.sources[i].is_here) continue;
    auto records = read_source(options, i);
    if (!records) return records.error();
    std::move(records.value().begin(), records.value().end(), std::back_inserter(dataset.records_));
  }
  if (Status unique = check_ids(dataset.records_); !unique) return unique.error();
  return dataset;
}

const Record* Dataset::find(std::int64_t index, std::span<const std::int64_t> counts) const {
  const auto [source, number] = place_of(index, counts);
  if (source >= std::min(counts.size(), begins_.size()) || !is_here_[source]) return nullptr;
  const std::int64_t own = begins_[source] + number;
  return own < size() ? &(*this)[own] : nullptr;
}

std::vector<std::int64_t> Dataset::source_counts() const {
  std::vector<std::int64_t> counts(media_folders_.size());
  for (const Record& record : records_) ++counts[static_cast<std::size_t>(record.source)];
  return counts;
}

std::filesystem::path Dataset::media_path(const Record& record, const std::string& name) const {
  return media_folders_[static_cast<std::size_t>(record.source)] / name;
}

}  // namespace troupe::data
