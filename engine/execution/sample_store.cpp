#include "engine/execution/sample_store.hpp"

#include <algorithm>
#include <utility>

namespace troupe::engine {

namespace {

/// Takes over what is not empty.
template <class Item>
void merge(std::vector<std::vector<Item>>& into, std::vector<std::vector<Item>>& added,
           std::vector<float> Item::*values) {
  into.resize(std::max(into.size(), added.size()));
  for (std::size_t encoder = 0; encoder < added.size(); ++encoder) {
    auto& items = into[encoder];
    items.resize(std::max(items.size(), added[encoder].size()));
    for (std::size_t i = 0; i < added[encoder].size(); ++i)
      if (!(added[encoder][i].*values).empty()) items[i] = std::move(added[encoder][i]);
  }
}

}  // namespace

void SampleStore::add(data::DecodedSample content) {
  const std::lock_guard lock(mutex_);
  Content& known = contents_[content.position];
  if (known) {
    data::DecodedSample all = *known;  // Others may be reading it.
    if (!content.text.tokens.empty()) all.text = std::move(content.text);
    merge(all.images, content.images, &data::ImagePatches::patches);
    merge(all.audio, content.audio, &data::AudioWindow::mel);
    content = std::move(all);
  }
  known = std::make_shared<const data::DecodedSample>(std::move(content));
}

}  // namespace troupe::engine
