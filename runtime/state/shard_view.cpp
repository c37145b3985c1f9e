#include "runtime/state/shard_view.hpp"

namespace troupe::state {

std::vector<std::int64_t> shape_of(const ShardKey& key) {
  std::vector<std::int64_t> shape;
  if (key.kind == StateKind::moments) shape.push_back(2);
  for (const IndexRange& range : key.box) shape.push_back(range.size());
  return shape;
}

at::Tensor view_of(const at::Tensor& shard, const ShardKey& key, const Box& box) {
  at::Tensor view = shard;
  const std::int64_t first = key.kind == StateKind::moments ? 1 : 0;
  for (std::size_t d = 0; d < box.size(); ++d)
    view = view.narrow(first + static_cast<std::int64_t>(d), box[d].begin - key.box[d].begin,
                       box[d].size());
  return view;
}

}  // namespace troupe::state
