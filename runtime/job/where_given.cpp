#include "runtime/job/where_given.hpp"

namespace troupe::job {

std::string where_given(const std::map<std::string, Origin>& origins, std::string key) {
  while (true) {
    if (const auto found = origins.find(key); found != origins.end()) return found->second.where;
    const auto cut = key.find_last_of(".[");
    if (cut == std::string::npos) return {};
    key.resize(cut);
  }
}

}  // namespace troupe::job
