#include "transport/nccl/nccl_streams.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace troupe::transport {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, NcclStreamMaker> makers;
};

Table& table() {
  static Table all;
  return all;
}

}  // namespace

void register_nccl_streams(const std::string& kind, NcclStreamMaker make) {
  const std::lock_guard lock(table().mutex);
  table().makers[kind] = std::move(make);
}

NcclStreamMaker find_nccl_streams(const std::string& kind) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().makers.find(kind);
  return found == table().makers.end() ? NcclStreamMaker{} : found->second;
}

}  // namespace troupe::transport
