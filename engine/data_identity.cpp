#include "engine/data_identity.hpp"

#include <span>
#include <string>
#include <string_view>

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

}  // namespace

DataIdentity identify(const data::Dataset& dataset) {
  DataIdentity identity{dataset.size(), state::kHashSeed};
  for (const auto& record : dataset.records()) {
    std::uint64_t& hash = identity.hash;
    hash = add(hash, record.id);
    hash = add(hash, std::to_string(record.turns.size()));
    for (const auto& turn : record.turns) {
      hash = add(hash, std::to_string(static_cast<int>(turn.role)));
      hash = add(hash, turn.text);
    }
    hash = add(add(hash, record.images), record.audio);
  }
  return identity;
}

Status same_data(const DataIdentity& here, const DataIdentity& there, const std::string& who) {
  if (here == there) return Done{};
  const std::string how =
      here.records == there.records
          ? "as many samples as the head, but other ones (ids, texts or names of media differ)"
          : std::to_string(there.records) + (there.records == 1 ? " sample" : " samples") +
                ", the head " + std::to_string(here.records);
  return Error{Errc::bad_data, who + " has other data: it has " + how, "data.sources",
               "give every node the same JSON files; `troupe node --job FILE` says where a node "
               "keeps them"};
}

}  // namespace troupe::engine
