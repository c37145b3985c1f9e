#include "engine/setup/data_identity.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>

#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/files/file_reads.hpp"
#include "runtime/state/tensor_hash.hpp"

namespace troupe::engine {

namespace {

std::uint64_t add(std::uint64_t hash, std::string_view text) {
  return state::hash_bytes(std::as_bytes(std::span(text)), hash);
}

std::uint64_t add(std::uint64_t hash, const std::vector<std::string>& texts) {
  hash = add(hash, std::to_string(texts.size()));
  for (const auto& text : texts) hash = add(hash, text);
  return hash;
}

std::uint64_t add(std::uint64_t hash, const data::Record& record) {
  hash = add(hash, record.id);
  hash = add(hash, std::to_string(record.turns.size()));
  for (const auto& turn : record.turns) {
    hash = add(hash, std::to_string(static_cast<int>(turn.role)));
    hash = add(hash, turn.text);
  }
  hash = add(add(hash, record.images), record.audio);
  return record.defect.empty() ? hash : add(hash, "cannot be a sample");
}

std::int64_t size_of(const std::filesystem::path& file) {
  const files::ReadingFile reading(file);
  std::error_code fault;
  const auto bytes = std::filesystem::file_size(file, fault);
  return fault ? -1 : static_cast<std::int64_t>(bytes);
}

std::vector<MediaSize> some_sizes(const data::Dataset& dataset, std::uint64_t seed) {
  std::vector<MediaSize> sizes;
  for (const std::int64_t index : data::epoch_order(seed, 0, dataset.size())) {
    const data::Record& record = dataset[index];
    for (const auto* names : {&record.images, &record.audio})
      for (const auto& name : *names) {
        if (sizes.size() == kComparedMedia) return sizes;
        sizes.push_back({name, size_of(dataset.media_path(record, name))});
      }
  }
  return sizes;
}

Error other_data(const std::string& who, const std::string& how, const std::string& what) {
  return {Errc::bad_data, who + " has other data: it has " + how, "data.sources",
          "give every node the same " + what +
              "; `troupe node --job FILE` says where a node keeps them"};
}

/// The same of a node that does not see all sources.
Status same_sources(const DataIdentity& here, const DataIdentity& there, const std::string& who) {
  const auto other = [&](std::size_t source, const std::string& how) {
    return other_data(who, how + " in data.sources[" + std::to_string(source) + "]", "JSON files");
  };
  if (here.hashes.size() != there.hashes.size())
    return other_data(who,
                      std::to_string(there.hashes.size()) + " sources, the head " +
                          std::to_string(here.hashes.size()),
                      "sources in its job file");
  for (std::size_t s = 0; s < here.hashes.size(); ++s) {
    if (there.hashes[s] == 0) continue;
    if (here.sources[s] != there.sources[s])
      return other(s, std::to_string(there.sources[s]) + " samples, the head " +
                          std::to_string(here.sources[s]));
    if (here.hashes[s] != there.hashes[s])
      return other(s, "as many samples as the head, but other ones");
  }
  return Done{};
}

}  // namespace

DataIdentity identify(const data::Dataset& dataset, std::uint64_t seed) {
  DataIdentity identity{dataset.size(), state::kHashSeed, some_sizes(dataset, seed),
                        dataset.source_counts()};
  if (!dataset.is_whole()) identity.media.clear();  // Chosen from other records than elsewhere.
  for (std::size_t s = 0; s < identity.sources.size(); ++s)
    identity.hashes.push_back(dataset.is_here(s) ? state::kHashSeed : 0);
  for (const auto& record : dataset.records()) {
    identity.hash = add(identity.hash, record);
    auto& own = identity.hashes[static_cast<std::size_t>(record.source)];
    own = add(own, record);
  }
  return identity;
}

std::uint64_t hash_of_first(const data::Dataset& dataset, std::span<const std::int64_t> records) {
  std::uint64_t hash = state::kHashSeed;
  std::vector<std::int64_t> left(records.begin(), records.end());
  for (const auto& record : dataset.records()) {
    const auto source = left.size() == 1 ? 0 : static_cast<std::size_t>(record.source);
    if (source < left.size() && left[source]-- > 0) hash = add(hash, record);
  }
  return hash;
}

Status same_data(const DataIdentity& here, const DataIdentity& there, const std::string& who) {
  if (std::find(there.hashes.begin(), there.hashes.end(), 0) != there.hashes.end())
    return same_sources(here, there, who);
  if (here.records != there.records)
    return other_data(who,
                      std::to_string(there.records) +
                          (there.records == 1 ? " sample" : " samples") + ", the head " +
                          std::to_string(here.records),
                      "JSON files");
  if (here.hash != there.hash)
    return other_data(
        who, "as many samples as the head, but other ones (ids, texts or names of media differ)",
        "JSON files");
  for (std::size_t i = 0; i < std::min(here.media.size(), there.media.size()); ++i) {
    const std::int64_t ours = here.media[i].bytes, theirs = there.media[i].bytes;
    if (ours >= 0 && theirs >= 0 && ours != theirs)
      return other_data(who,
                        "'" + here.media[i].name + "' with " + std::to_string(theirs) +
                            " bytes, others with " + std::to_string(ours),
                        "media files");
  }
  return Done{};
}

void learn_sizes(DataIdentity& here, const DataIdentity& there) {
  for (std::size_t i = 0; i < std::min(here.media.size(), there.media.size()); ++i)
    if (here.media[i].bytes < 0) here.media[i].bytes = there.media[i].bytes;
}

}  // namespace troupe::engine
